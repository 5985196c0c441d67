"""How well pages are used, and how much of what could be shared is: `python -m benchmarks.pages`.

32 conversations of four owners share a system prompt. Each begins with one of eight documents and
goes on for a few turns; they arrive and idle at random (from a fixed seed), and some are closed and
opened again from their tokens, as after a reload. Everything runs on the real engine and model.

`waste_fraction` is the share of held token positions without KV, over all turns. `hit_rate` is the
share of shareable tokens that were found: full pages of sequences that came without KV, whose
content was computed before (counted from the tokens alone, as a cache that never evicts would).
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.report import Report
from engine import Engine, EngineConfig, Sampling, Session

SYSTEM = (
    "You answer questions about the user's documents. Use only the passages that you are given. "
    "Name the passage that an answer comes from. If the passages do not hold the answer, say so."
)
_WORDS = (
    *("cache", "page", "token", "layer", "head", "query", "prompt", "answer", "memory", "turn"),
    *("share", "fork", "evict", "prefix", "chunk", "batch", "step", "latency", "budget", "stream"),
)


@dataclass
class Conversation:
    owner: str
    document: str
    turns: int
    session: Session | None = None
    stored: list[int] = field(default_factory=list)
    done: int = 0


@dataclass
class Shareable:
    """Counts, from the tokens alone, what a perfect prefix cache would find."""

    page_size: int
    static: list[int]
    seen: set[tuple[str | None, tuple[int, ...]]] = field(default_factory=set)
    tokens: int = 0

    def __post_init__(self) -> None:
        self._note(self.static, None)

    def _prefixes(self, tokens: list[int]) -> list[tuple[int, ...]]:
        return [
            tuple(tokens[:end]) for end in range(self.page_size, len(tokens) + 1, self.page_size)
        ]

    def _note(self, tokens: list[int], owner: str | None) -> None:
        self.seen |= {(owner, prefix) for prefix in self._prefixes(tokens)}

    def arrive(self, tokens: list[int], owner: str) -> None:
        """A sequence comes without KV: count its leading full pages that were computed before."""
        for prefix in self._prefixes(tokens[:-1]):
            if (None, prefix) not in self.seen and (owner, prefix) not in self.seen:
                break
            self.tokens += self.page_size

    def computed(self, session: Session) -> None:
        self._note(session.tokens[: session.kv_tokens], session.owner)


def used_and_held(sessions: list[Session], page_size: int) -> tuple[int, int]:
    """Token positions with KV, and positions of the pages that sessions hold; shared ones once."""
    used: dict[int, int] = {}
    for session in sessions:
        for index, page in enumerate(session.pages):
            filled = min(max(session.kv_tokens - index * page_size, 0), page_size)
            used[page] = max(used.get(page, 0), filled)
    return sum(used.values()), len(used) * page_size


def run(
    report: Report, model: str, conversations: int, page_size: int, kv_memory: str, seed: int
) -> None:
    """Play the conversations through once; adds a row."""
    rng = random.Random(seed)
    engine = Engine(
        EngineConfig(model, page_size=page_size, kv_memory=kv_memory, max_sessions=8),
        on_progress=typer.echo,
    )
    engine.set_system(SYSTEM)
    shareable = Shareable(page_size, list(engine.static_tokens))
    documents = [" ".join(rng.choices(_WORDS, k=rng.randint(150, 1100))) for _ in range(8)]
    waiting = [
        Conversation(f"owner {rng.randrange(4)}", rng.choice(documents), rng.randint(2, 4))
        for _ in range(conversations)
    ]
    idle: list[Conversation] = []
    held_positions = used_positions = pages_peak = 0
    while waiting or idle:
        if waiting and (not idle or rng.random() < 0.4):
            conversation = waiting.pop()
        else:
            conversation = idle.pop(rng.randrange(len(idle)))
        question = " ".join(rng.choices(_WORDS, k=rng.randint(8, 40))) + "?"
        if conversation.session is None:
            first = not conversation.stored
            session = engine.open(conversation.stored, owner=conversation.owner)
            new = engine.format.end(session.tokens[-1:]) if not first else []
            text = f"{conversation.document}\n\n{question}" if first else question
            new += engine.format.user(text, first=first)
            conversation.session = session
            shareable.arrive(session.tokens + new, conversation.owner)
        else:
            session = conversation.session
            new = engine.format.end(session.tokens[-1:]) + engine.format.user(question, first=False)
            if not session.kv_tokens:  # it gave its pages up while it was idle
                shareable.arrive(session.tokens + new, conversation.owner)
        engine.generate(session, new, Sampling(max_tokens=rng.randint(8, 32))).result()
        shareable.computed(session)
        conversation.done += 1
        if conversation.done < conversation.turns:
            idle.append(conversation)
            if rng.random() < 0.15:
                conversation.stored = list(session.tokens)
                engine.close(session)
                conversation.session = None
        open_sessions = [c.session for c in [*idle, conversation] if c.session is not None]
        used, held = used_and_held(list(set(open_sessions)), page_size)
        used_positions, held_positions = used_positions + used, held_positions + held
        memory = engine.memory()
        pages_peak = max(pages_peak, memory.pages_sessions + memory.pages_static)
        ended = conversation.done == conversation.turns
        if ended and conversation.session is not None and rng.random() < 0.5:
            engine.close(conversation.session)  # the others stay open, and idle for the rest
            conversation.session = None
    stats = engine.prefix_stats()
    report.add(
        case=f"{conversations} conversations, page size {page_size}, KV memory {kv_memory}",
        system="pageturn",
        waste_fraction=1 - used_positions / held_positions,
        hit_rate=stats.hit_tokens / shareable.tokens,
        lookup_hit_rate=stats.hit_tokens / stats.looked_up_tokens,
        looked_up_tokens=stats.looked_up_tokens,
        shareable_tokens=shareable.tokens,
        hit_tokens=stats.hit_tokens,
        evicted_tokens=stats.evicted_tokens,
        pages_peak=pages_peak,
        pages_total=engine.memory().pages_total,
    )
    engine.check()
    engine.shutdown()


def main(
    model: Annotated[str, typer.Option(help="As for the application.")] = (
        "data/var/models/SmolLM2-135M-Instruct"
    ),
    conversations: int = 32,
    page_size: int = 16,
    kv_memory: Annotated[str, typer.Option(help="Pool sizes, with commas between.")] = "auto",
    seed: int = 1,
    json: Annotated[Path | None, typer.Option(help="Write the figures here.")] = None,
) -> None:
    """Measure page use, waste and prefix hits on the real engine."""
    report = Report()
    for size in kv_memory.split(","):
        run(report, model, conversations, page_size, size, seed)
    report.show("Pages")
    report.write(json)


if __name__ == "__main__":
    typer.run(main)
