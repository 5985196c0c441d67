"""What a process with an engine in it answers: JSON lines on its input and output.

    {"op": "load", "model": ..., "threads": 2, "options": {}}   -> {"about": {...}}
    {"op": "run", "prompts": [[...]], "new_tokens": 33}         -> {"tokens": [...], "steps": [...]}
    {"op": "choose", ...as run}                                 -> {"chosen": {...}}
    {"op": "logits", "tokens": [...], "chunk": 128, "file": F}  -> {}, and the array in F

An error is {"error": sentence}, and {"missing": sentence} where the engine is not installed. Only
the standard library and NumPy are used here: a peer's Python may have nothing else.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class Missing(Exception):
    """The engine cannot be imported."""


class Run(NamedTuple):
    """Some answers to some prompts, all of the same length.

    Attributes:
        tokens: ids generated, an answer each.
        steps: when tokens came, in seconds since the call, and how many.
    """

    tokens: list[list[int]]
    steps: list[tuple[float, int]]

    @property
    def ttft_s(self) -> float:
        return self.steps[0][0]

    @property
    def decode_tokens_per_s(self) -> float:
        """From the first token to the last, while all answers are on their way."""
        full = [step for step in self.steps if step[1] >= len(self.tokens)]
        return sum(count for _, count in full[1:]) / (full[-1][0] - full[0][0])


class System(Protocol):
    """An engine with a model loaded."""

    about: dict[str, Any]

    def run(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Run:
        """Greedy answers of exactly `new_tokens` tokens, all prompts at once."""
        ...

    def choose(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> dict[str, Any]:
        """A run that does not count, in which the engine may find its best settings."""
        ...

    def logits(self, tokens: Sequence[int], chunk: int) -> Any:
        """Logits at every position, computed `chunk` tokens at a time: a float32 array."""
        ...


Load = Callable[[Path, int, dict[str, Any]], System]


def serve(load: Load) -> None:
    """Answer until the input ends. What libraries print goes to the error output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    system: System | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer, system = _answer(request, system, load)
        except Missing as missing:
            answer = {"missing": str(missing)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _answer(
    request: dict[str, Any], system: System | None, load: Load
) -> tuple[dict[str, Any], System | None]:
    if request["op"] == "load":
        system = load(Path(request["model"]), request["threads"], request["options"])
        return {"about": system.about}, system
    if system is None:
        raise RuntimeError("nothing is loaded")
    if request["op"] == "logits":
        import numpy

        logits = system.logits(request["tokens"], request["chunk"])
        numpy.save(request["file"], numpy.asarray(logits, dtype=numpy.float32))
        return {}, system
    arguments = request["prompts"], request["new_tokens"]
    if request["op"] == "choose":
        return {"chosen": system.choose(*arguments)}, system
    return system.run(*arguments)._asdict(), system
