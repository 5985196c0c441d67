"""What it takes to choose a token: `python -m benchmarks.sampling [--json FILE]`.

Logits of a vocabulary of 128,256 tokens, drawn so that the likeliest few stand out as a model's do,
by turns for each setting; `choose_s` is the median time of a token. `sort` is what sorting the
whole vocabulary alone would take.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import torch

from benchmarks.report import Report
from engine import Sampling
from engine.sampler import NO_TOKEN, choose
from engine.sampling import Draw

VOCABULARY = 128_256
ROUNDS = 50
SETTINGS = {
    "greedy": Sampling(),
    "temperature 1": Sampling(temperature=1, seed=1),
    "temperature .7, top-p .9": Sampling(temperature=0.7, top_p=0.9, seed=1),
    "temperature 1, top-p .95, top-k 50": Sampling(temperature=1, top_p=0.95, top_k=50, seed=1),
    "temperature 1, min-p .05": Sampling(temperature=1, min_p=0.05, seed=1),
}


def _choose(logits: np.ndarray, sampling: Sampling, random: Random) -> list[int]:
    return choose(logits, [Draw(sampling, random.random())], [NO_TOKEN])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(VOCABULARY, generator=generator) * 2.5
    logits[:20] += torch.arange(20, 0, -1) * 0.8
    ways: dict[str, Callable[[], object]] = {
        "sort": lambda: logits.sort(descending=True, stable=True)
    }
    for name, sampling in SETTINGS.items():
        ways[name] = partial(_choose, logits.numpy()[None], sampling, Random(sampling.seed))
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            taken[name].append(time.perf_counter() - start)
    report = Report()
    for name, times in taken.items():
        report.add(f"{VOCABULARY:,} tokens", name, choose_s=float(np.median(times)))
    report.show("Choosing a token")
    report.write(options.json)


if __name__ == "__main__":
    main()
