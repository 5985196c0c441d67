"""KL divergence between what two systems predict for the same text."""

import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy
import torch

from benchmarks.peers.process import Peer
from engine.coded.teacher_forcing import divergences

_MEMORY = "/dev/shm"


class Divergence(NamedTuple):
    """Over some positions: the mean KL, and how often both find the same token likeliest."""

    kl: float
    same_top: float
    tokens: int


class Way(NamedTuple):
    """A system, how many tokens it computes at a time, and how many documents it is given."""

    system: str
    chunk: int
    documents: int | None = None


def measure(
    reference: Peer,
    systems: Mapping[str, Peer],
    ways: Sequence[Way],
    texts: Iterable[tuple[str, list[int]]],
    progress: Callable[[str], None],
) -> dict[Way, Divergence]:
    """Compare text by text, so that no more than two texts' logits are held at a time.

    Args:
        reference: gives the logits that count as right, at every position of a text.
        systems: by name.
        ways: what is measured.
        texts: a name and tokens each; every position is one prediction of a next token.
    """
    kl, same = defaultdict(list), defaultdict(list)
    # In memory where that can be: hundreds of megabytes change hands.
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.path.isdir(_MEMORY) else None) as folder:
        file = Path(folder) / "logits.npy"
        for index, (name, tokens) in enumerate(texts):
            progress(f"{name}: {len(tokens)} tokens")
            right = torch.log_softmax(_logits(reference, tokens, 512, file), dim=-1)
            for way in ways:
                if way.documents is None or index < way.documents:
                    logits = _logits(systems[way.system], tokens, way.chunk, file)
                    per_token, top = divergences(right, logits)
                    kl[way].append(per_token)
                    same[way].append(top)
    return {
        way: Divergence(
            torch.cat(kl[way]).mean().item(),
            torch.cat(same[way]).double().mean().item(),
            sum(map(len, kl[way])),
        )
        for way in ways
    }


def _logits(peer: Peer, tokens: list[int], chunk: int, file: Path) -> torch.Tensor:
    peer.ask("logits", tokens=tokens, chunk=chunk, file=str(file))
    return torch.from_numpy(numpy.load(file))
