"""What the server remembers of each open tab: never the conversation, only what it waits for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from chat.ui.asking import Asking

_MOST_TABS = 1000
# A browser draws every turn that it shows whenever one is added: a long conversation begins with
# its newest turns, and more of it is a click away.
NEWEST_TURNS = 8
MORE_TURNS = 24
# How often a tab asks what is new, and how often while an answer comes in: every time takes the
# browser some fifty milliseconds of the cores that the engine computes on.
CLOCK_S = 2.0
SLOW_CLOCK_S = 6.0


@dataclass
class Tab:
    """One page in one browser.

    ``view`` counts up when another conversation is shown, so that an answer that is still being
    written knows that nobody looks at it here any more. ``streaming`` is the view whose answer
    comes in now. ``asking`` waits between the two steps of sending it; ``refused`` is one that
    goes back into the composer. ``search`` is what the list of conversations is searched for,
    ``reach`` how many of the newest turns are shown.
    """

    view: int = 0
    streaming: int | None = None
    asking: Asking | None = None
    refused: Asking | None = None
    search: str = ""
    reach: int = NEWEST_TURNS

    @property
    def is_streaming(self) -> bool:
        return self.streaming == self.view

    def turn_to_another(self) -> None:
        """Another conversation is about to be shown."""
        self.view += 1
        self.refused = None
        self.reach = NEWEST_TURNS

    def take(self) -> Asking | None:
        asking, self.asking = self.asking, None
        return asking


class Tabs:
    """The open tabs by owner and Gradio's session hash, which the browser makes up.

    After a restart of the server all are new again.
    """

    def __init__(self) -> None:
        self._tabs: OrderedDict[tuple[str, str], Tab] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._tabs)

    def of(self, session_hash: str | None, owner: str = "local") -> Tab:
        """The tab, a new one where it isn't known; the one not seen longest goes over the limit."""
        key = (owner, session_hash or "")
        with self._lock:
            tab = self._tabs.setdefault(key, Tab())
            self._tabs.move_to_end(key)
            if len(self._tabs) > _MOST_TABS:
                self._tabs.popitem(last=False)
            return tab

    def forget(self, session_hash: str | None, owner: str = "local") -> None:
        with self._lock:
            self._tabs.pop((owner, session_hash or ""), None)
