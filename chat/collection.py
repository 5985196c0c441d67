"""Whether a finaliser runs in the middle of something else.

The garbage collector comes by wherever something is made, and what it finalises runs there: with
whatever locks that code holds, in the middle of whatever it does. It must not wait for anybody.
"""

from __future__ import annotations

import gc
from threading import local
from typing import Any

_here = local()


def is_collecting() -> bool:
    """Whether the garbage collector is at work in this thread."""
    return getattr(_here, "collecting", False)


def _note(phase: str, _info: dict[str, Any]) -> None:
    _here.collecting = phase == "start"


gc.callbacks.append(_note)
