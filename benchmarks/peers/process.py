"""The measuring side: peers as processes that are asked one at a time."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import typer

from benchmarks.peers.protocol import Run

ROOT = Path(__file__).parents[2]
MODULES = {
    "pageturn": "pageturn_worker",
    "transformers": "transformers_worker",
    "llama.cpp": "llama_cpp_worker",
    "openvino": "openvino_worker",
}


class PeerMissing(Exception):
    """The peer is not installed in its Python."""


class PeerFailed(Exception):
    """The peer is there and did not do what was asked."""


class Peer:
    """A system in a process of its own, under the Python that has it.

    Attributes:
        name: of the system.
        about: what it says of itself.
    """

    def __init__(self, name: str, python: str, model: Path, threads: int, **options: Any) -> None:
        """Start it and load the model.

        Raises:
            PeerMissing, PeerFailed: there is no process then.
        """
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
        try:
            self._process = subprocess.Popen(
                [python, "-m", f"benchmarks.peers.{MODULES[name]}"],
                cwd=ROOT, env=environment, text=True, encoding="utf-8",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            )  # fmt: skip
        except OSError as error:
            raise PeerMissing(f"{python} does not run: {error}") from error
        try:
            self.about = self.ask("load", model=str(model), threads=threads, options=options)[
                "about"
            ]
        except BaseException:
            self.close()
            raise

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        """One request and its answer.

        Raises:
            PeerMissing, PeerFailed: with what it said.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()[-400:]
            raise PeerFailed(f"{self.name} ended: {said}")
        answer: dict[str, Any] = json.loads(line)
        if "missing" in answer:
            raise PeerMissing(answer["missing"])
        if "error" in answer:
            raise PeerFailed(f"{self.name}: {answer['error']}")
        return answer

    def run(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Run:
        """See `System.run`."""
        answer = self.ask("run", prompts=prompts, new_tokens=new_tokens)
        return Run(answer["tokens"], [(at, count) for at, count in answer["steps"]])

    def choose(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> dict[str, Any]:
        """See `System.choose`."""
        chosen: dict[str, Any] = self.ask("choose", prompts=prompts, new_tokens=new_tokens)[
            "chosen"
        ]
        return chosen

    def cpu_s(self) -> float:
        """Processor time that it has taken so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


def pythons(given: Sequence[str]) -> dict[str, str]:
    """Read `NAME=PATH` options.

    Raises:
        typer.BadParameter: one is something else.
    """
    read = {}
    for option in given:
        name, _, path = option.partition("=")
        if name not in MODULES or not path:
            raise typer.BadParameter(
                f"{option!r} is not NAME=PATH with one of {', '.join(MODULES)}"
            )
        read[name] = path
    return read


@contextmanager
def peers(
    names: Sequence[str],
    python: Mapping[str, str],
    model: Path,
    threads: int,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[dict[str, Peer]]:
    """The systems that can be had; one that is missing is named and left out."""
    with ExitStack() as stack:
        found = {}
        for name in names:
            try:
                started = Peer(
                    name, python.get(name, sys.executable), model, threads,
                    **(options or {}).get(name, {}),
                )  # fmt: skip
            except PeerMissing as missing:
                typer.echo(f"{name} is left out: {missing}")
                continue
            stack.callback(started.close)
            found[name] = started
        yield found
