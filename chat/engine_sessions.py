"""The engine's sessions of the conversations: kept open, so that their KV stays."""

from __future__ import annotations

from itertools import takewhile
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine import Engine, Session, SessionInfo


class Resumed(NamedTuple):
    """An engine session, and the tokens of its conversation that it does not hold yet."""

    session: Session
    missing: list[int]


class EngineSessions:
    """One engine session a conversation. The engine takes back pages of idle ones by itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = Lock()
        self._open: dict[str, Session] = {}

    def resume(self, session_id: str, owner: str, tokens: Sequence[int]) -> Resumed:
        """The session that holds the longest beginning of ``tokens``, and nothing else.

        In a conversation that goes on, that is all but the tokens that close the last answer.
        After a restart, the session is opened from the stored tokens and computes them again.
        """
        with self._lock:
            session = self._open.get(session_id)
        if session is None:
            fresh = tuple(tokens) == self._engine.static_tokens
            session = self._engine.open(() if fresh else tokens, owner=owner)
            with self._lock:
                self._open[session_id] = session
        pairs = zip(session.tokens, tokens, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if shared < len(session.tokens):
            self._engine.truncate(session, shared)
        return Resumed(session, list(tokens[shared:]))

    def close(self, session_id: str) -> None:
        """Give the conversation's KV back for good; its stored tokens open it again."""
        with self._lock:
            session = self._open.pop(session_id, None)
        if session is not None:
            self._engine.close(session, forget=True)

    def free(self, session_id: str) -> None:
        """Give the conversation's pages back, and keep its session: the next turn computes them.

        Raises SessionBusy while it answers.
        """
        with self._lock:
            session = self._open.get(session_id)
        if session is not None:
            self._engine.drop_kv(session)

    def held(self) -> dict[str, SessionInfo]:
        """What the engine holds for each conversation that has a session, by its id."""
        infos = {info.id: info for info in self._engine.session_list()}
        with self._lock:
            return {
                conversation: infos[session.id]
                for conversation, session in self._open.items()
                if session.id in infos
            }

    @property
    def ids(self) -> list[str]:
        """The conversations that have one."""
        with self._lock:
            return list(self._open)
