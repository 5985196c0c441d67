"""That the engine stays a house which one can read: how far it is from a call to logits."""

import ast
import io
import sys
import threading
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any

import engine as package
from engine import Engine, Sampling

ENGINE = Path(package.__file__).parent
MOST_FILES, MOST_LINES, MOST_CODE = 19, 2800, 1700
"""From a call to logits: files, lines, and lines that are no blank, comment or docstring."""


def _lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def _code_lines(file: Path) -> int:
    """Lines that hold a token of code."""
    source = file.read_text(encoding="utf-8")
    docs = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return len(
        {
            line
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
            for line in range(token.start[0], token.end[0] + 1)
        }
        - docs
    )


def test_from_a_call_of_generate_to_logits_is_a_short_read(
    make_engine: Callable[..., Engine],
) -> None:
    """Counted are whole files, of which a function was entered from the call until logits exist.

    All threads are watched, while PyTorch computes the first turn of a conversation, so that pages
    are found, shared, copied and reserved.
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
        engine.set_system("Be brief, and answer in one sentence. " * 3)
        session = engine.open()
        new = engine.format.user("Hello there, who are you?", first=True)
        sampling = Sampling(max_tokens=3)
        forward = engine._executor.forward

        def last_watched(*given: Any) -> Any:
            nonlocal watching
            logits = forward(*given)
            watching = False
            return logits

        engine._executor.forward = last_watched  # type: ignore[method-assign]
        sys.setprofile(watch)
        watching = True
        engine.generate(session, new, sampling).result(60)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    found = {str(file.relative_to(ENGINE)): (_lines(file), _code_lines(file)) for file in entered}
    assert len(found) <= MOST_FILES, sorted(found)
    assert sum(lines for lines, _ in found.values()) <= MOST_LINES, found
    assert sum(code for _, code in found.values()) <= MOST_CODE, found


def test_no_file_is_long() -> None:
    sources = [*ENGINE.rglob("*.py"), *ENGINE.rglob("*.cpp"), *ENGINE.rglob("*.h")]
    long = {str(f.relative_to(ENGINE)): _lines(f) for f in sources if _lines(f) > 400}
    assert not long
