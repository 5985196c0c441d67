"""What one turn cost, measured where it happened."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine import EngineStats


@dataclass(frozen=True)
class TurnStats:
    """Everything the engine measured for the turn, and what retrieval and chat add.

    ``ttft_s`` runs from the call of ``ask`` to the first text of the model handed on;
    ``engine_ttft_s`` from the engine's own queue on. Both are 0.0 where the model wrote nothing.
    ``rewrite_s`` is what the model took to rewrite a follow-up, before ``retrieve_s``, 0.0 where it
    was not asked to.
    ``evidence_s`` runs from the call of ``ask`` to the documents' own sentences, which come first,
    ``total_s`` to the end of the turn.
    ``prompt_tokens = cached_tokens + computed_tokens``; ``static_tokens`` is the part of the
    cached ones that came from the static prompt. ``refreshed_tokens`` were computed again exactly
    while nobody waited, before this turn (only where KV is coded). Seconds end in ``_s``.
    """

    ttft_s: float = 0.0
    engine_ttft_s: float = 0.0
    rewrite_s: float = 0.0
    retrieve_s: float = 0.0
    evidence_s: float = 0.0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    total_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    static_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    passages_reused: int = 0
    ahead_tokens: int = 0
    decode_tokens_per_s: float = 0.0
    refreshed_tokens: int = 0
    kv_pages: int = 0
    kv_bytes: int = 0
    device_bytes_before: int = 0
    device_bytes_after: int = 0
    device_bytes_peak: int = 0

    @classmethod
    def of(cls, engine: EngineStats, turn: TurnStats) -> TurnStats:
        """The engine's figures and the turn's own, whose clock began earlier, in one flat value."""
        measured = asdict(engine) | {"engine_ttft_s": engine.ttft_s}
        del measured["ttft_s"], measured["total_s"]
        return replace(turn, **measured)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> TurnStats:
        """From what ``to_json`` gave, in this version or another: unknown fields are left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in stored.items() if name in known})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
