"""Does a session's bookkeeping hold? What `KVCache.check` asks of each."""

from engine.kv.pages import PageAllocator
from engine.kv.prefix import Node, PrefixCache
from engine.kv.session import Session


class SessionCheck:
    """Holds sessions of one cache against its pages and the prefix tree."""

    def __init__(
        self,
        page_size: int,
        root: Node,
        pages: PageAllocator,
        prefix: PrefixCache,
        caching: bool,
    ) -> None:
        self._size, self._root, self._caching = page_size, root, caching
        self._pages, self._prefix = pages, prefix

    def table(self, session: Session) -> None:
        """A session's table covers its KV, and a page to be written to is its own.

        Raises:
            RuntimeError: names what does not hold.
        """
        full, rest = divmod(session.kv_tokens, self._size)
        if session.kv_tokens > len(session.pages) * self._size:
            raise RuntimeError(f"{session} has KV beyond its {len(session.pages)} pages")
        if session.kv_tokens > len(session.tokens):
            raise RuntimeError(f"{session} has KV for tokens that it does not have")
        if len(session.nodes) != full:
            raise RuntimeError(f"{session} has {len(session.nodes)} nodes, not {full}")
        if not rest:
            return
        if session.pages[full] in self._prefix:
            raise RuntimeError(f"{session} will write to a page that is published")
        if self._pages.holders(session.pages[full]) != 1:
            raise RuntimeError(f"{session} will write to a page that is shared")
        if self._pages.is_coded(session.pages[full]):
            raise RuntimeError(f"{session} will write to a coded page")

    def nodes(self, session: Session) -> None:
        """A session's full pages stand in the tree where their tokens and its owner lead.

        Raises:
            RuntimeError: names what does not hold.
        """
        parent = self._root
        for index, node in enumerate(session.nodes):
            content = session.tokens[index * self._size : (index + 1) * self._size]
            if node.parent is not parent or node.step[1] != tuple(content):
                raise RuntimeError(f"page {index} of {session} stands for other tokens")
            if node.step[0] not in (None, session.owner):
                raise RuntimeError(f"page {index} of {session} belongs to another owner")
            if self._caching and session.pages[index] not in node.pages:
                raise RuntimeError(f"page {index} of {session} is full and cannot be found")
            parent = node
