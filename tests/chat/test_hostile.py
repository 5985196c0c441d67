"""No text that a person or a document brings takes a pattern longer than in proportion to it."""

import importlib
import pkgutil
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from chat.kinds import kind_of
from tests.hostile import hostile

ROOT = Path(__file__).parents[2]
PACKAGES = ("chat", "retrieval", "host", "engine")
CHARACTERS = 10_000
LIMIT_S = 0.005
# A busy machine may take a multiple of the processor time; what is quadratic takes a hundredfold.
GENEROUS = 6
TRIES = 3
# What is read is cut before: (pattern, the most characters that it is given, and where).
BOUNDED = {
    ("retrieval.parsers.docx", "_NO_WORDS"): 40,  # a paragraph below _MAX_NUMBER
    ("retrieval.parsers.xlsx_formats", "_TOKEN"): 500,  # the beginning of a format
    ("retrieval.parsers.html", "_DECLARED"): 4096,  # _DECLARED_WITHIN
}
_METHODS = ("search", "match", "fullmatch", "finditer", "sub")


class Used(NamedTuple):
    """A pattern of the tree, and how it is used there."""

    module: str
    name: str
    pattern: re.Pattern[Any]
    methods: tuple[str, ...]

    @property
    def characters(self) -> int:
        return BOUNDED.get((self.module, self.name), CHARACTERS)


class TooLong(Exception):
    pass


def used() -> Iterator[Used]:
    seen: set[re.Pattern[Any]] = set()
    for package in map(importlib.import_module, PACKAGES):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".migrations" in found.name:
                continue
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                for pattern in _patterns(value):
                    if pattern not in seen:
                        seen.add(pattern)
                        yield Used(found.name, name, pattern, _methods(found.name, name))


def _patterns(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _patterns(one)


def _methods(module: str, name: str) -> tuple[str, ...]:
    """How a pattern is used: what its module calls it for, or all of a list's loop variables."""
    source = (ROOT / (module.replace(".", "/") + ".py")).read_text("utf-8")
    called = re.findall(rf"\b{name}\.(\w+)\(", source) or re.findall(
        rf"\b(?:pattern|cut|signature|sign)\.({'|'.join(_METHODS)})\(", source
    )
    names = {"findall": "finditer", "split": "finditer", "subn": "sub"}
    return tuple({names.get(method, method) for method in called} or _METHODS)


def _run(pattern: re.Pattern[Any], method: str, text: Any) -> None:
    if method in ("finditer", "sub"):
        for _ in pattern.finditer(text):
            pass
    else:
        getattr(pattern, method)(text)


@pytest.fixture
def hang_guard() -> Iterator[None]:
    """An exponential pattern raises instead of holding up all tests."""

    def late(_: int, __: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, late)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def seconds(pattern: re.Pattern[Any], method: str, text: Any) -> float:
    """Processor time, the best of some tries; raises TooLong beyond a second."""
    best = float("inf")
    for _ in range(TRIES):
        signal.setitimer(signal.ITIMER_VIRTUAL, 1.0)
        start = time.thread_time()
        _run(pattern, method, text)
        best = min(best, time.thread_time() - start)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if best <= LIMIT_S:
            break
    return best


ALL = list(used())


@pytest.mark.parametrize("one", ALL, ids=[f"{one.module}.{one.name}" for one in ALL])
def test_ten_thousand_hostile_characters_cost_no_more_than_milliseconds(
    one: Used, hang_guard: None
) -> None:
    for text in hostile(one.pattern, one.characters):
        for method in one.methods:
            try:
                taken_s = seconds(one.pattern, method, text)
            except TooLong:
                taken_s = float("inf")
            assert taken_s < LIMIT_S * GENEROUS, (method, text[:60], text[-5:])


def test_the_texts_find_what_is_exponential_and_what_is_quadratic(hang_guard: None) -> None:
    for pattern in (r"(?:a+b?)+c", r"(?:你好|你|好)+x", r"[ \t]*\n", r"\w+@", r"a.*b.*c"):
        with pytest.raises((TooLong, AssertionError)):
            test_ten_thousand_hostile_characters_cost_no_more_than_milliseconds(
                Used("", "", re.compile(pattern), ("finditer", "fullmatch")), None
            )


@pytest.mark.parametrize(
    "question",
    ["你好" * 29 + "x", "hi" * 29 + "x", "谢谢你" * 19 + "x",
     "say that" + " in in" * 1_600 + "\x01",
     "how many " * 1_100, "wie oft " * 1_200 + "!", "fasse " * 1_600, "please " * 1_400 + "x",
     "did i ask" + " me" * 3_000 + "x", "in the " * 1_400, "all " * 2_500, "多少" * 5_000,
     "how many is in the " * 500 + "x", " " * 10_000, ". " * 5_000, "then " * 2_000],
    ids=range(16),
)  # fmt: skip
def test_any_question_is_sorted_at_once(question: str, hang_guard: None) -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 10.0)
    best = float("inf")
    for _ in range(TRIES):
        start = time.thread_time()
        kind_of(question, follows=True)
        best = min(best, time.thread_time() - start)
    assert best < 4 * LIMIT_S * GENEROUS  # four patterns
