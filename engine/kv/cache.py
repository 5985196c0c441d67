"""What can be done to a session that does not run: fork, go back, close. No tensors."""

from contextlib import suppress

from engine.errors import OutOfPages
from engine.kv.books import PageBooks
from engine.kv.session import Session


class KVCache(PageBooks):
    """The KV of all sessions: the books, and how sessions branch, shrink and end."""

    def close(self, session: Session, forget: bool = False) -> None:
        """Let go of a session.

        Args:
            session: idle.
            forget: leave nothing of it findable, whatever it went through (turns taken back, a
                history that was cut): all that is cached for its owner becomes free.
        """
        self.drop(session)
        self._sessions.discard(session)
        session.closed = True
        if forget:
            self._forget(session.owner)

    def pin_static(self, session: Session) -> None:
        """Make a computed session the static prompt: it is never evicted, and others fork it."""
        self.unpin_static()
        self._sessions.discard(session)
        self.static = session

    def unpin_static(self) -> None:
        """Give the static prompt up; its pages go once no session holds them."""
        self.drop(self.static)
        self._forget(None)
        self.static = Session(owner=None)

    def truncate(self, session: Session, tokens: int) -> None:
        """Keep the first `tokens` tokens and their KV."""
        del session.tokens[tokens:]
        self.truncate_kv(session, tokens)

    def truncate_kv(self, session: Session, tokens: int) -> None:
        """Keep the KV of the first `tokens` tokens at most; the tokens stay."""
        session.kv_tokens = min(session.kv_tokens, tokens)
        session.static_tokens = min(session.static_tokens, session.kv_tokens)
        del session.nodes[session.kv_tokens // self.page_size :]
        self.trim(session)
        if session.kv_tokens % self.page_size:
            self._own_last_page(session)

    def fork(self, parent: Session) -> Session:
        """A session with the same tokens: full pages are shared, the partial one is copied.

        Where there is no page for the copy, its few tokens are computed again instead.
        """
        full, rest = divmod(parent.kv_tokens, self.page_size)
        self.pages.retain(parent.pages[:full])
        child = Session(
            owner=parent.owner,
            tokens=list(parent.tokens),
            kv_tokens=full * self.page_size,
            nodes=parent.nodes[:full],
            last_used=parent.last_used,
        )
        child.pages += parent.pages[:full]
        if rest:
            with suppress(OutOfPages):
                child.pages += self.obtain(1, parent)
                self._copy_page(parent.pages[full], child.pages[full])
                child.kv_tokens += rest
        child.static_tokens = min(parent.static_tokens, child.kv_tokens)
        self.add(child)  # only now: an idle session might have to give its pages up
        return child

    def check_writable(self, session: Session, page: int) -> None:
        """Whether a session may write to a page; part of `engine.kv.check`.

        Raises:
            RuntimeError: it may not.
        """
        if page in self.prefix:
            raise RuntimeError(f"{session} will write to a page that is published")
        if self.pages.holders(page) != 1:
            raise RuntimeError(f"{session} will write to a page that is shared")

    def _is_open(self, page: int) -> bool:
        """Whether more KV can be written to a page."""
        return True

    # -- inside ------------------------------------------------------------------------------

    def _own_last_page(self, session: Session) -> None:
        """Before a page is written to in its middle: nobody else may hold it or find it."""
        last = session.pages[-1]
        if not self._is_open(last):
            self._give_up_last_page(session)
            return
        if self.pages.holders(last) == 1 and last not in self.prefix:
            return
        try:
            (own,) = self.obtain(1, session)
        except OutOfPages:
            self._give_up_last_page(session)
            return
        self._copy_page(last, own)
        session.pages[-1] = own
        self.pages.release([last])

    def _give_up_last_page(self, session: Session) -> None:
        """Let its tokens be computed again."""
        self.pages.release([session.pages.pop()])
        session.kv_tokens = len(session.pages) * self.page_size
        session.static_tokens = min(session.static_tokens, session.kv_tokens)

    def _forget(self, owner: str | None) -> None:
        """Discard what is cached for an owner; what sessions hold stays."""
        for node in list(self.prefix.nodes):
            if node.step[0] == owner:
                for page in list(node.pages):
                    if not self.pages.holders(page):
                        self.pages.discard(page)
