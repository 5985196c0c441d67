"""Whose documents a person sees: their own, and the library that is shared by all."""

SHARED = "shared"


def visible_to(owner: str) -> tuple[str, ...]:
    """The owners whose documents are listed and searched for `owner`."""
    return (owner,) if owner == SHARED else (owner, SHARED)
