"""That the engine stays a house which one can read: how far it is from a call to logits."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import engine as package
from engine import Engine, Sampling

ENGINE = Path(package.__file__).parent
MOST_FILES, MOST_LINES, MOST_LINES_OF_A_FILE = 15, 2000, 400
# What the call makes for the end of an answer: no logits pass through it.
AFTER_LOGITS = {"answer_text.py", "tokenizer.py", "sampler.py"}


def _lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def test_from_a_call_of_generate_to_logits_is_a_short_read(
    make_engine: Callable[..., Engine],
) -> None:
    """Counted are whole files, of which a function was entered from the call until logits exist.

    All threads are watched, with PyTorch computing; a conversation's second turn, so that pages are
    found, shared and reserved.
    """
    entered: set[Path] = set()
    watching = False

    def watch(frame: Any, event: str, _: Any) -> None:
        file = Path(frame.f_code.co_filename)
        if watching and event == "call" and ENGINE in file.parents:
            entered.add(file)

    threading.setprofile(watch)  # for threads that begin from here on: the engine's
    try:
        engine = make_engine(backend="torch")
        engine.set_system("Be brief, and answer in one sentence.")
        session = engine.open()
        new = engine.format.user("Hello there, who are you?", first=True)
        engine.generate(session, new, Sampling(max_tokens=3)).result(60)
        new = engine.format.end(session.tokens[-1:]) + engine.format.user("And?", first=False)
        forward = engine._executor.forward

        def last_watched(*given: Any) -> Any:
            nonlocal watching
            logits = forward(*given)
            watching = False
            return logits

        engine._executor.forward = last_watched  # type: ignore[method-assign]
        sys.setprofile(watch)
        watching = True
        engine.generate(session, new, Sampling(max_tokens=3)).result(60)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    path = {file for file in entered if file.name not in AFTER_LOGITS}
    print({str(f.relative_to(ENGINE)): _lines(f) for f in sorted(path)}, sum(map(_lines, path)))
    named = sorted(str(file.relative_to(ENGINE)) for file in path)
    assert len(path) <= MOST_FILES, named
    assert sum(map(_lines, path)) <= MOST_LINES, {name: _lines(ENGINE / name) for name in named}


def test_no_file_is_long() -> None:
    sources = [*ENGINE.rglob("*.py"), *ENGINE.rglob("*.cpp"), *ENGINE.rglob("*.h")]
    long = {str(f.relative_to(ENGINE)): _lines(f) for f in sources if _lines(f) > 400}
    assert not long
    assert MOST_LINES_OF_A_FILE == 400
