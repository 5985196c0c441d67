"""Pages for a session that is computed again, until they take the old ones' place. No tensors."""

from engine.errors import OutOfPages
from engine.kv.cache import KVCache
from engine.kv.prefix import Node
from engine.kv.session import Session


class FreshPages:
    """Reserves pages for a shadow session and hands them over; knows plain pages only.

    Attributes:
        cache: whose pages these are.
    """

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache

    def reserve(self, shadow: Session, politely: bool = False) -> None:
        """Give a session without pages those for all its tokens.

        Of what is computed already, only full pages of the static prompt are shared: they are
        exact.

        Args:
            shadow: the session.
            politely: idle sessions keep theirs.

        Raises:
            OutOfPages: there are too few; the session holds nothing still.
        """
        cache = self.cache
        static = cache.static_nodes(shadow)
        pages = cache.layout.pages(len(shadow.tokens)) - len(static)
        if politely and pages > cache.pages.available:
            raise OutOfPages(pages, cache.pages.available)
        self._begin(shadow, static, cache.obtain(pages, shadow))

    def stale(self, least: int) -> Session | None:
        """The idle session whose KV is worth computing again, for which there is room.

        Args:
            least: approximate tokens that it has. Plain pages hold none.
        """
        return None

    def hand_over(self, session: Session, shadow: Session) -> None:
        """Give a session the pages of its shadow, whose KV is all there. The shadow is closed."""
        cache = self.cache
        self._advance(shadow)
        cache.drop(session)
        session.pages += shadow.pages
        session.nodes = shadow.nodes
        session.kv_tokens, session.static_tokens = shadow.kv_tokens, shadow.static_tokens
        shadow.pages.clear()
        shadow.nodes, shadow.kv_tokens = [], 0
        cache.close(shadow)
        for page, node in zip(session.pages, session.nodes, strict=False):
            # No other page with the same content stays findable, unless somebody holds it.
            for other in list(node.pages):
                if other != page and not cache.pages.holders(other):
                    cache.pages.discard(other)

    def _begin(self, shadow: Session, static: list[Node], own: list[int]) -> None:
        shared = self.cache.static.pages[: len(static)]
        self.cache.pages.retain(shared)
        shadow.pages += [*shared, *own]
        shadow.nodes = static
        shadow.kv_tokens = shadow.static_tokens = len(static) * self.cache.page_size

    def _advance(self, shadow: Session) -> None:
        self.cache.advance(shadow, shadow.pending_tokens)
