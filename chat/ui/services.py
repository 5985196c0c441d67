"""What every handler of the page calls."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chat.conversation import Conversations
    from engine import Engine
    from retrieval.library import Library


@dataclass(eq=False)
class Services:
    """The services behind one page. Who asks is known from the request, never from an input."""

    _conversations: Conversations
    _library: Library
    _engine: Engine
    _sample_library: Path
