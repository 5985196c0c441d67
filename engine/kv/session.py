"""One conversation's tokens and the pages that hold their KV."""

from dataclasses import dataclass, field
from itertools import count

from engine.kv.prefix import Node
from engine.kv.table import PageTable

_ids = count(1)


@dataclass(eq=False)
class Session:
    """A sequence of tokens, of which a leading part has its KV in the pool.

        tokens   |---------------- kv_tokens ----------------|--- computed next ---|
        pages    | 0 | 1 | 2 |  ...                       |p |
                 |-- static --|  shared with the static prompt

    The token list is the truth; KV can be taken away at any time and is computed again.

    Attributes:
        owner: whose conversation it is; None for the static prompt, which is everybody's.
        tokens: every token, generated ones included. Others than the engine only read it.
        pages: position p lies in `pages[p // page_size]`.
        kv_tokens: leading tokens whose KV is stored.
        nodes: where its full pages stand in the prefix cache, one for each.
        static_tokens: leading tokens whose KV was taken over from the static prompt.
        busy: a request of it waits or runs.
        running: that request runs, so nobody may take the pages away.
        closed: given back for good.
        shadow: it only holds pages until they are another session's (see `engine.exact`).
        last_used: the engine's step counter, for choosing which idle session gives up its pages.
        refreshed_tokens: computed again exactly since its last request began.
    """

    owner: str | None
    tokens: list[int] = field(default_factory=list)
    pages: PageTable = field(default_factory=PageTable)
    kv_tokens: int = 0
    nodes: list[Node] = field(default_factory=list)
    static_tokens: int = 0
    busy: bool = False
    running: bool = False
    closed: bool = False
    shadow: bool = False
    last_used: int = 0
    refreshed_tokens: int = 0
    id: int = field(default_factory=lambda: next(_ids))

    @property
    def pending_tokens(self) -> int:
        """Tokens whose KV is still to be computed."""
        return len(self.tokens) - self.kv_tokens

    def __repr__(self) -> str:
        return f"<session {self.id}: {len(self.tokens)} tokens, {self.kv_tokens} with KV>"
