"""A second opinion on a page that PDFium reads badly or not at all: pypdf's."""

import contextlib
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pypdf import PdfReader

PAGE_CPU_S = 4.0


class _TooSlow(Exception):
    pass


class SecondReader:
    """Opens the file when it is first asked; whatever fails is no opinion."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: PdfReader | None = None
        self._is_hopeless = False
        # It remarks on every oddity of a file; the reader's own report says what matters.
        logging.getLogger("pypdf").setLevel(logging.CRITICAL)

    @property
    def pages(self) -> int:
        """How many pages it finds, 0 where it cannot open the file."""
        with self._guarded():
            return len(self._opened().pages)
        return 0

    def page_text(self, number: int) -> str | None:
        """The text of a page counted from 0, in pypdf's order of reading."""
        with self._guarded():
            if not self._is_hopeless:
                return self._opened().pages[number].extract_text()
        return None

    def _opened(self) -> PdfReader:
        if self._reader is None:
            self._is_hopeless = True
            reader = PdfReader(self._path)
            if reader.is_encrypted:
                reader.decrypt("")
            self._reader, self._is_hopeless = reader, False
        return self._reader

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        # A parser of hostile files in pure Python raises whatever its code runs into.
        with contextlib.suppress(Exception), _cpu_limit(PAGE_CPU_S):
            yield


@contextmanager
def _cpu_limit(seconds: float) -> Iterator[None]:
    """Interrupt Python code that computes longer; where the system can't, the child's limits do."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
