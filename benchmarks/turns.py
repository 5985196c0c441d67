"""What a turn costs as a conversation grows: `python -m benchmarks.turns --plot turns.png`.

A conversation of turns of 100 new and 40 generated tokens, in up to four ways:

    session    Pageturn: the KV of all turns is kept; a turn computes what is new
    turn       the history is computed again at each turn, KV is kept within it: what a stateless
               call of `generate` does. Pageturn's own engine, so that nothing else differs
    none       no KV at all: every token computes everything before it again. Measured for the first
               token and the last of a turn, the others interpolated between (`interpolated`)
    openvino   the peer with its prefix caching, given the whole history each turn

`session` and `openvino` walk through every turn; `turn` and `none` are measured at `--turns`, with
the session's own tokens as the history. Figures are medians of `--rounds` conversations of new text
(one of three turns before them does not count); the ways take turns within a conversation.

`bound_s` is the least time that the turn's operations and bytes can take at the rates of matrix
products and copies measured in this run (see `bound.py`), `ttft_bound_s` the same up to the first
token.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer

from benchmarks.answering import answer
from benchmarks.bound import Bound, Rates
from benchmarks.engine import MODEL
from benchmarks.peers.process import Peer, peers, pythons
from benchmarks.prose import Prompts
from benchmarks.report import Report
from engine import Engine, EngineConfig, Session
from engine.model_config import ModelConfig
from engine.tokenizer import Tokenizer
from engine.weights import model_folder, read_json
from host import environment

NEW, GENERATED = 100, 40
WARM_UP_TURNS = 3
MODES = ("openvino", "none", "turn", "session")


class Turn(NamedTuple):
    """What a turn cost. Tokens are None where the system does not say."""

    ttft_s: float
    turn_s: float
    cached_tokens: int | None = None
    computed_tokens: int | None = None


Found = dict[tuple[int, str], list[Turn]]


class Conversation:
    """One conversation of new text, walked through turn by turn in every way."""

    def __init__(self, engine: Engine, peer: Peer | None, prompts: Prompts, name: str) -> None:
        self._engine, self._peer, self._prompts, self._name = engine, peer, prompts, name
        self._session = engine.open(owner=name)
        self._history: list[int] = []

    def turn(self, number: int, modes: Sequence[str]) -> dict[str, Turn]:
        """The next turn in these ways."""
        new = self._prompts.take(NEW)
        before = list(self._session.tokens)
        found: dict[str, Turn] = {}
        if "openvino" in modes and self._peer is not None:
            self._history += new
            run = self._peer.run([self._history], GENERATED)
            self._history += run.tokens[0]
            found["openvino"] = Turn(run.ttft_s, run.steps[-1][0])
        if "session" in modes or "turn" in modes or "none" in modes:
            found["session"] = self._ask(self._session, new)
        if "turn" in modes:
            found["turn"] = self._stateless(before, new, f"{self._name}, turn {number}")
        if "none" in modes:
            found["none"] = self._without_kv(before, new)
        return {mode: found[mode] for mode in modes if mode in found}

    def close(self) -> None:
        self._engine.close(self._session, forget=True)

    def _ask(self, session: Session, new: Sequence[int]) -> Turn:
        given = answer(self._engine, session, new, GENERATED)
        stats = given.stats
        return Turn(
            given.steps[0][0], given.steps[-1][0], stats.cached_tokens, stats.computed_tokens
        )

    def _stateless(self, history: Sequence[int], new: Sequence[int], owner: str) -> Turn:
        """All tokens in a new session; another owner's pages are not found."""
        session = self._engine.open(history, owner=owner)
        turn = self._ask(session, new)
        self._engine.close(session, forget=True)
        if turn.cached_tokens:
            raise RuntimeError("a stateless turn found something cached")
        return turn

    def _without_kv(self, history: Sequence[int], new: Sequence[int]) -> Turn:
        tokens = [*history, *new]
        first = self._one_token(tokens)
        last = self._one_token(tokens + self._prompts.take(GENERATED - 1))
        computed = sum(len(tokens) + done for done in range(GENERATED))
        return Turn(first, GENERATED * (first + last) / 2, 0, computed)

    def _one_token(self, tokens: Sequence[int]) -> float:
        session = self._engine.open(owner=f"{self._name}, without KV")
        taken_s = answer(self._engine, session, tokens, 1).steps[-1][0]
        self._engine.close(session, forget=True)
        return taken_s


def walk(
    engine: Engine, peer: Peer | None, prompts: Prompts, turns: Sequence[int],
    modes: Sequence[str], rounds: int,
) -> Found:  # fmt: skip
    """All turns of all conversations, by turn and mode."""
    found: Found = defaultdict(list)
    for number in range(rounds + 1):
        conversation = Conversation(engine, peer, prompts, f"conversation {number}")
        last = max(turns) if number else min(WARM_UP_TURNS, max(turns))
        for turn in range(1, last + 1):
            here = [m for m in modes if turn in turns or m in ("session", "openvino")]
            measured = conversation.turn(turn, here)
            if number:
                for mode, cost in measured.items():
                    found[turn, mode].append(cost)
        conversation.close()
        typer.echo(f"conversation {number} of {rounds} done" if number else "warmed up")
    return found


def medians(found: Found) -> dict[tuple[int, str], Turn]:
    """The median of each time; tokens are the same in every round."""
    return {
        key: Turn(
            statistics.median(turn.ttft_s for turn in turns),
            statistics.median(turn.turn_s for turn in turns),
            *turns[0][2:],
        )
        for key, turns in found.items()
    }


def add(
    report: Report, found: Mapping[tuple[int, str], Turn], turns: Sequence[int],
    modes: Sequence[str], bound: Bound, runs: int,
) -> None:  # fmt: skip
    """Rows of the asked turns, with their bounds."""
    for turn in turns:
        for mode in modes:
            cost = found.get((turn, mode))
            if cost is not None:
                report.add(
                    f"turn {turn}", mode, ttft_s=cost.ttft_s, turn_s=cost.turn_s,
                    cached_tokens=cost.cached_tokens, computed_tokens=cost.computed_tokens,
                    **_bounds(bound, mode, turn, cost),
                    interpolated=True if mode == "none" else None, runs=runs,
                )  # fmt: skip


def _bounds(bound: Bound, mode: str, turn: int, cost: Turn) -> dict[str, Any]:
    prompt = turn * NEW + (turn - 1) * GENERATED
    if mode == "none":
        first, whole = bound.without_kv_s(prompt, GENERATED)
    elif cost.cached_tokens is None or cost.computed_tokens is None:
        return {}  # its weights and KV have other sizes, which it does not say
    else:
        first, whole = bound.turn_s(cost.cached_tokens, cost.computed_tokens, GENERATED)
    return {"ttft_bound_s": first, "bound_s": whole}


def ratios(found: Mapping[tuple[int, str], Turn], turns: Sequence[int]) -> dict[str, Any]:
    """How much quicker `session` is than the other ways, by turn, and how it grows."""

    def versus(mode: str, field: str) -> dict[str, float]:
        return {
            str(turn): getattr(found[turn, mode], field) / getattr(found[turn, "session"], field)
            for turn in turns
            if (turn, mode) in found and (turn, "session") in found
        }

    made: dict[str, Any] = {
        "ttft_vs_turn": versus("turn", "ttft_s"),
        "turn_vs_turn": versus("turn", "turn_s"),
        "turn_vs_none": versus("none", "turn_s"),
        "ttft_vs_openvino": versus("openvino", "ttft_s"),
        "turn_vs_openvino": versus("openvino", "turn_s"),
    }
    made = {name: value for name, value in made.items() if value}
    last = max(turns)
    made["ttft_last_vs_second"] = {
        mode: found[last, mode].ttft_s / found[2, mode].ttft_s
        for mode in ("session", "openvino")
        if (2, mode) in found and (last, mode) in found
    }
    return made


def main(
    turns: Annotated[str, typer.Option(help="Turns to show.")] = "1,5,10,20,50",
    modes: Annotated[str, typer.Option(help="Ways, with commas between.")] = ",".join(MODES),
    peer_python: Annotated[
        list[str] | None, typer.Option(help="NAME=PATH of the Python that has a peer.")
    ] = None,
    model: Annotated[Path, typer.Option(help="A GGUF file.")] = MODEL,
    rounds: int = 5,
    weights: Annotated[str, typer.Option(help="As for the application.")] = "auto",
    plot: Annotated[Path | None, typer.Option(help="Draw the article's chart here.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the figures here.")] = None,
) -> None:
    """Measure the turns of a conversation with and without KV."""
    environment.prepare()
    report, wanted = Report(), modes.split(",")
    if unknown := set(wanted) - set(MODES):
        raise typer.BadParameter(f"{', '.join(unknown)}: modes are {', '.join(MODES)}")
    shown = sorted({int(turn) for turn in turns.split(",")})
    folder = model_folder(str(model), None, typer.echo)
    sizes = ModelConfig.from_json(read_json(folder, "config.json"))
    prompts = Prompts(Tokenizer(folder).encode, seed=time.time_ns())
    names = [mode for mode in wanted if mode == "openvino"]
    options = {"openvino": {"prefix_caching": True}}
    threads = torch.get_num_threads()
    with peers(names, pythons(peer_python or []), model, threads, options) as others:
        engine = Engine(EngineConfig(str(model), weights=weights), on_progress=typer.echo)  # type: ignore[arg-type]
        memory = engine.memory()
        found = medians(walk(engine, others.get("openvino"), prompts, shown, wanted, rounds))
        kv_token_bytes = memory.kv_page_bytes // engine.config.page_size
        engine.shutdown()
        rates = Rates.measure(sizes.hidden, sizes.intermediate)
    bound = Bound(sizes, rates, memory.weights_bytes, kv_token_bytes)
    add(report, found, shown, [mode for mode in MODES if mode in wanted], bound, rounds)
    report.ratios = ratios(found, shown) | {
        "gemm_flops_per_s": rates.gemm_flops_per_s,
        "copy_bytes_per_s": rates.copy_bytes_per_s,
    }
    report.show("Turns of a conversation")
    report.write(json)
    if plot is not None:
        from benchmarks.turns_plot import draw

        draw(found, plot)


if __name__ == "__main__":
    typer.run(main)
