"""Prefill and decode beside other engines: `python -m benchmarks.engine --against llama.cpp`.

Every system runs in a process of its own, under its own Python where `--peer-python` names one,
with the same number of threads, and they are asked by turns: one prompt each, then the next. The
prompts are token ids and new each time; nothing is cached between them. The first run of each size
does not count (llama.cpp chooses in it between flash attention on and off). Figures are medians of
`--rounds` runs; a system that takes longer than `--slow-s` for one is given three, and `runs` says
how many there were. `idle_cpu_fraction` is the processor time that the waiting systems took while
another was measured, of the time measured.

OpenVINO keeps KV in 8 bits by its own default; `--kv-dtypes int8,k8v4` adds Pageturn with such KV.

`prefill_tokens_per_s` is the prompt's tokens over the time to the first token, the engine's own
waiting and sampling included; `decode_tokens_per_s` counts from the first token to the last.

`kl` is the mean of KL(reference || system) over the tokens of the sample library's English Markdown
documents, each a sequence. The reference is the same file dequantised to float32, computed by the
engine's PyTorch path, which the tests hold against transformers. Pageturn's has one figure for the
path of prefill (128 tokens at a time) and one for that of decode (one at a time, on fewer
documents).
"""

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks.divergence import Divergence, Way, measure
from benchmarks.peers.process import Peer, peers, pythons
from benchmarks.peers.protocol import Run
from benchmarks.prose import Encode, Prompts, documents
from benchmarks.report import Report
from engine.tokenizer import Tokenizer
from engine.weights import model_folder
from host import environment

MODEL = Path("data/var/models/SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf")
WEIGHTS = ("auto", "bfloat16", "int8", "int4")
DECODE_DOCUMENTS = 2
SLOW_ROUNDS = 3


class Referee:
    """Asks one system at a time, and watches that those that wait leave it the processors."""

    def __init__(self, systems: Mapping[str, Peer]) -> None:
        self._systems = systems
        self._taken_s = self._measured_s = 0.0

    def run(self, name: str, prompt: list[int], new_tokens: int) -> Run:
        """One measured run of a system."""
        time.sleep(0.3)  # threads of the one before go to sleep
        others = [peer for other, peer in self._systems.items() if other != name]
        before, started = sum(peer.cpu_s() for peer in others), time.perf_counter()
        run = self._systems[name].run([prompt], new_tokens)
        self._measured_s += time.perf_counter() - started
        self._taken_s += sum(peer.cpu_s() for peer in others) - before
        return run

    @property
    def idle_cpu_fraction(self) -> float:
        return self._taken_s / self._measured_s if self._measured_s else 0.0


def speeds(
    report: Report, systems: Mapping[str, Peer], prompts: Prompts, contexts: Sequence[int],
    new_tokens: int, rounds: int, slow_s: float,
) -> None:  # fmt: skip
    """Measure every system at every context length; adds rows and ratios."""
    referee = Referee(systems)
    for context in contexts:
        chosen = {
            name: peer.choose([prompts.take(context)], new_tokens) for name, peer in systems.items()
        }
        runs: dict[str, list[Run]] = {name: [] for name in systems}
        wanted = dict.fromkeys(systems, rounds)
        for number in range(rounds):
            for name in systems:
                if number < wanted[name]:
                    run = referee.run(name, prompts.take(context), new_tokens)
                    runs[name].append(run)
                    if run.steps[-1][0] > slow_s:
                        wanted[name] = min(rounds, SLOW_ROUNDS)
        for name in systems:
            report.add(str(context), name, **_medians(context, runs[name]), **chosen[name])
        typer.echo(f"{context} tokens measured")
    report.ratios["idle_cpu_fraction"] = referee.idle_cpu_fraction
    for phase in ("prefill", "decode"):
        for name in systems:
            if name.startswith("pageturn "):  # another KV dtype, against our own first figure
                versus = _versus(report, f"{phase}_tokens_per_s", "pageturn", of=name)
                report.ratios[f"{phase}_of_{name.removeprefix('pageturn ')}_kv"] = versus
            elif name != "pageturn":
                ratio = _versus(report, f"{phase}_tokens_per_s", name)
                report.ratios[f"{phase}_vs_{name}"] = ratio


def _medians(context: int, runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "prefill_tokens_per_s": statistics.median(context / run.ttft_s for run in runs),
        "decode_tokens_per_s": statistics.median(run.decode_tokens_per_s for run in runs),
        "ttft_s": statistics.median(run.ttft_s for run in runs),
        "runs": len(runs),
    }


def _versus(report: Report, field: str, name: str, of: str = "pageturn") -> dict[str, float]:
    """By case, the figure of the system `of` over that of another."""
    found = {(row["case"], row["system"]): row.get(field) for row in report.rows}
    return {
        case: ours / theirs
        for (case, system), ours in found.items()
        if system == of and ours and (theirs := found.get((case, name)))
    }


def accuracy(
    report: Report, model: Path, threads: int, against: Sequence[str],
    python: Mapping[str, str], encode: Encode, weights: str,
) -> None:  # fmt: skip
    """Measure divergences; adds rows, and `kl` to the rows of speeds."""
    with ExitStack() as stack:

        def pageturn(**options: str) -> Peer:
            own = python.get("pageturn", sys.executable)
            peer = Peer("pageturn", own, model, threads, kv_memory="256MiB", **options)
            stack.callback(peer.close)
            return peer

        with_logits = [name for name in against if name != "openvino"]
        systems = dict(stack.enter_context(peers(with_logits, python, model, threads)))
        ways = [Way(name, 512) for name in systems]
        for name in WEIGHTS:
            systems[name] = pageturn(weights=name)
            ways += [Way(name, 128), Way(name, 1, DECODE_DOCUMENTS)]
        reference = pageturn(dtype="float32", backend="torch")
        texts = [(name, encode(text)) for name, text in documents().items()]
        _report(report, measure(reference, systems, ways, texts, typer.echo), weights)


def _report(report: Report, found: Mapping[Way, Divergence], weights: str) -> None:
    of_system: dict[str, float | None] = {}
    for way, divergence in found.items():
        name = f"pageturn {way.system}" if way.system in WEIGHTS else way.system
        case = "kl, one token at a time" if way.chunk == 1 else f"kl, {way.chunk} at a time"
        report.add(
            case, name, kl=divergence.kl, same_top_fraction=divergence.same_top,
            tokens=divergence.tokens,
        )  # fmt: skip
        if way.chunk > 1:
            of_system["pageturn" if way.system == weights else way.system] = divergence.kl
    for row in report.rows:
        if "prefill_tokens_per_s" in row:
            row["kl"] = of_system.get(row["system"])


def main(
    against: Annotated[str, typer.Option(help="Peers, with commas between.")] = (
        "transformers,llama.cpp,openvino"
    ),
    peer_python: Annotated[
        list[str] | None, typer.Option(help="NAME=PATH of the Python that has a peer.")
    ] = None,
    model: Annotated[Path, typer.Option(help="A GGUF file, for all of them.")] = MODEL,
    contexts: Annotated[str, typer.Option(help="Prompt lengths in tokens.")] = "128,1000,2000,4000",
    new_tokens: Annotated[int, typer.Option(help="Generated after each prompt.", min=33)] = 49,
    rounds: int = 5,
    slow_s: Annotated[float, typer.Option(help="A longer run is repeated three times only.")] = 8.0,
    weights: Annotated[str, typer.Option(help="Pageturn's, as for the application.")] = "auto",
    kv_dtypes: Annotated[
        str, typer.Option(help="Also Pageturn with these KV dtypes, as `pageturn KV`.")
    ] = "",
    kl: Annotated[bool, typer.Option(help="Measure the divergence.")] = True,
    kl_only: Annotated[bool, typer.Option(help="Measure nothing else.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the figures here.")] = None,
) -> None:
    """Measure the engine beside others on the same file."""
    environment.prepare()
    report, names, python = Report(), against.split(","), pythons(peer_python or [])
    threads = torch.get_num_threads()
    encode = Tokenizer(model_folder(str(model), None, typer.echo)).encode
    if not kl_only:
        options = {"pageturn": {"weights": weights}}
        with (
            peers(["pageturn", *names], python, model, threads, options) as systems,
            ExitStack() as stack,
        ):
            for kv_dtype in filter(None, kv_dtypes.split(",")):
                own = python.get("pageturn", sys.executable)
                coded = Peer("pageturn", own, model, threads, weights=weights, kv_dtype=kv_dtype)
                stack.callback(coded.close)
                systems[f"pageturn {kv_dtype}"] = coded
            lengths = [int(length) for length in contexts.split(",")]
            prompts = Prompts(encode, seed=time.time_ns())
            speeds(report, systems, prompts, lengths, new_tokens, rounds, slow_s)
    if kl or kl_only:
        accuracy(report, model, threads, names, python, encode, weights)
    report.show("The engine and others")
    report.write(json)


if __name__ == "__main__":
    typer.run(main)
