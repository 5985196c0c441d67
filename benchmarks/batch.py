"""Conversations that decode at once: `python -m benchmarks.batch --sessions 1,2,4,8,16`.

Each has a prompt of its own (new text, `--prompt-tokens` long) and a thread that reads its answer,
as the page's do. `decode_tokens_per_s` counts the tokens of all together, from when the last has
begun its answer to when the first has ended. `token_gap_p95_s` is over the gaps between the pieces
of text that each caller gets, those in which others' prompts were computed included. Figures are
medians of `--rounds` rounds, in which the systems take turns; each system's first run does not
count.

OpenVINO's `generate` with as many prompts stands beside, and transformers, which answers one after
another: its rate is the same for any number.
"""

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy
import torch
import typer

from benchmarks.answering import Step, answer
from benchmarks.engine import MODEL
from benchmarks.peers.process import Peer, peers, pythons
from benchmarks.peers.protocol import Run
from benchmarks.prose import Prompts
from benchmarks.report import Report
from engine import Engine, EngineConfig
from engine.tokenizer import Tokenizer
from engine.weights import model_folder
from host import environment

TRANSFORMERS = "transformers, one after another"


class Together(NamedTuple):
    """What one run of several streams came to."""

    decode_tokens_per_s: float
    token_gap_p95_s: float


def together(streams: Sequence[Sequence[Step]]) -> Together:
    """Figures of streams whose steps have times of one clock."""
    begun = max(steps[0][0] for steps in streams)
    ended = min(steps[-1][0] for steps in streams)
    tokens = sum(count for steps in streams for at, count in steps if begun < at <= ended)
    gaps = [later[0] - earlier[0] for steps in streams for earlier, later in pairwise(steps)]
    return Together(tokens / (ended - begun), float(numpy.percentile(gaps, 95)))


def ours(engine: Engine, prompts: Sequence[Sequence[int]], new_tokens: int) -> Together:
    """As many sessions as prompts, which ask at the same moment."""
    streams: dict[int, list[Step]] = {}
    barrier = threading.Barrier(len(prompts))

    def caller(index: int) -> None:
        session = engine.open(owner=f"caller {index}")
        barrier.wait()
        started = time.perf_counter()
        given = answer(engine, session, prompts[index], new_tokens)
        streams[index] = [(started + at, count) for at, count in given.steps]
        engine.close(session, forget=True)

    threads = [threading.Thread(target=caller, args=(index,)) for index in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(streams) < len(prompts):
        raise RuntimeError("an answer failed")
    return together(list(streams.values()))


def theirs(run: Run) -> Together:
    """A run in which every step gives each answer a token."""
    times = [at for at, _ in run.steps]
    gaps = numpy.diff(times)
    return Together(run.decode_tokens_per_s, float(numpy.percentile(gaps, 95)))


def measure(
    engine: Engine, others: dict[str, Peer], prompts: Prompts, sessions: Sequence[int],
    prompt_tokens: int, new_tokens: int, rounds: int,
) -> dict[tuple[int, str], list[Together]]:  # fmt: skip
    """All runs by number of sessions and system; the first round is dropped."""
    found: dict[tuple[int, str], list[Together]] = defaultdict(list)

    def fresh(count: int) -> list[list[int]]:
        return [prompts.take(prompt_tokens) for _ in range(count)]

    for number in range(rounds + 1):
        for count in sessions:
            found[count, "pageturn"].append(ours(engine, fresh(count), new_tokens))
            if "openvino" in others:
                run = others["openvino"].run(fresh(count), new_tokens)
                found[count, "openvino"].append(theirs(run))
        if "transformers" in others:
            run = others["transformers"].run(fresh(1), new_tokens)
            found[1, TRANSFORMERS].append(theirs(run))
        typer.echo(f"round {number} of {rounds}" if number else "first round done, not counted")
    return {key: runs[1:] for key, runs in found.items()}


def add(report: Report, found: dict[tuple[int, str], list[Together]]) -> None:
    """Rows of medians, and ratios by number of sessions."""
    rates: dict[tuple[int, str], float] = {}
    for (count, system), runs in found.items():
        rates[count, system] = statistics.median(run.decode_tokens_per_s for run in runs)
        report.add(
            f"{count} at once", system,
            decode_tokens_per_s=rates[count, system],
            token_gap_p95_s=statistics.median(run.token_gap_p95_s for run in runs),
            runs=len(runs),
        )  # fmt: skip
    bases = {"one": (1, "pageturn"), "transformers": (1, TRANSFORMERS)}
    for name, base in bases.items():
        if base in rates:
            report.ratios[f"vs_{name}"] = {
                str(count): rate / rates[base]
                for (count, system), rate in rates.items()
                if system == "pageturn"
            }
    report.ratios["vs_openvino"] = {
        str(count): rate / rates[count, "openvino"]
        for (count, system), rate in rates.items()
        if system == "pageturn" and (count, "openvino") in rates
    }


def main(
    sessions: Annotated[str, typer.Option(help="Numbers, with commas between.")] = "1,2,4,8,16",
    against: Annotated[str, typer.Option(help="transformers, openvino or both.")] = (
        "transformers,openvino"
    ),
    peer_python: Annotated[
        list[str] | None, typer.Option(help="NAME=PATH of the Python that has a peer.")
    ] = None,
    model: Annotated[Path, typer.Option(help="A GGUF file, for all of them.")] = MODEL,
    prompt_tokens: int = 128,
    new_tokens: Annotated[int, typer.Option(help="Length of every answer.", min=33)] = 96,
    rounds: int = 5,
    weights: Annotated[str, typer.Option(help="As for the application.")] = "auto",
    json: Annotated[Path | None, typer.Option(help="Write the figures here.")] = None,
) -> None:
    """Measure how the rate grows with the number of conversations."""
    environment.prepare()
    counts = [int(count) for count in sessions.split(",")]
    report, python = Report(), pythons(peer_python or [])
    prompts = Prompts(
        Tokenizer(model_folder(str(model), None, typer.echo)).encode, seed=time.time_ns()
    )
    names = [name for name in ("transformers", "openvino") if name in against.split(",")]
    with peers(names, python, model, torch.get_num_threads()) as others:
        config = EngineConfig(str(model), max_sessions=max(counts), weights=weights)  # type: ignore[arg-type]
        engine = Engine(config, on_progress=typer.echo)
        found = measure(engine, others, prompts, counts, prompt_tokens, new_tokens, rounds)
        engine.shutdown()
    add(report, found)
    report.show("Conversations at once")
    report.write(json)


if __name__ == "__main__":
    typer.run(main)
