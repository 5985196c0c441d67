"""What a browser says that it shows, so that the clock sends only what differs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any


@dataclass
class Seen:
    """A digest for each part of the page.

    It travels with the parts, in one answer: whatever order answers arrive in, it never claims
    that something is shown that is not. A server that remembered what it had sent would.
    """

    digests: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> Seen:
        """From ``dump``; text that is not of its making means that nothing has been seen."""
        try:
            digests = json.loads(text or "{}")
        except ValueError:
            return cls()
        return cls(digests if isinstance(digests, dict) else {})

    def is_news(self, part: str, value: Any) -> bool:
        """Whether the value differs from the one shown; from now on it is the one shown."""
        digest = blake2b(repr(value).encode(), digest_size=8).hexdigest()
        is_news = self.digests.get(part) != digest
        self.digests[part] = digest
        return is_news

    def dump(self) -> str:
        return json.dumps(self.digests)
