"""What a codec does to a model: its predictions for a text, compared with full precision."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from engine.coded.codec import unflatten
from engine.coded.layout import CodedLayout
from engine.coded.teacher_forcing import TeacherForcing, divergences
from engine.executor import Executor

LARGEST_KL = 0.02
LEAST_TOP1 = 0.95
LARGEST_ERROR = 0.4
POSITIONS = 1000
STEP = 64
"""Tokens at a time: more would see each other in full precision, fewer would take longer."""


class Verdict(NamedTuple):
    """What a comparison has found.

    Attributes:
        kl: mean KL(full precision || coded).
        top1: how often both find the same token likeliest.
        error: of the worst page of keys or values, relative to what it holds in full precision.
            Attention does not care in which order it sees what it sees, and loses little with one
            page of many: a page in another's place shows here only.
        positions: how many predictions were compared, each of which saw coded pages. 0 where the
            model's context is too short for any page to be coded.
        dtype: of the arithmetic.
    """

    kl: float
    top1: float
    error: float
    positions: int
    dtype: str

    @property
    def passes(self) -> bool:
        # A NaN is on the wrong side of each.
        good = self.kl <= LARGEST_KL and self.top1 >= LEAST_TOP1 and self.error <= LARGEST_ERROR
        return good or not self.positions

    def __str__(self) -> str:
        return (
            f"KL {self.kl:.2g} (at most {LARGEST_KL}), the same likeliest token at {self.top1:.1%} "
            f"of {self.positions:,} positions (at least {LEAST_TOP1:.0%}), the worst page off by "
            f"{self.error:.1%} (at most {LARGEST_ERROR:.0%}), measured in {self.dtype}"
        )


def measure(
    executor: Executor,
    layout: CodedLayout,
    tokens: Sequence[int],
    progress: Callable[[float], None] = lambda _: None,
) -> Verdict:
    """Read a text with the layout's codec and without.

    Args:
        executor: computes.
        layout: of coded pages; what is not coded is in the executor's dtype.
        tokens: of the text; one longer than the context is cut into several.
        progress: told what share is done, four times.

    Returns:
        What was found at the first `POSITIONS` positions that see coded pages, or at as many as
        there are.
    """
    kl, same, errors = [torch.zeros(0)], [torch.zeros(0, dtype=torch.bool)], [0.0]
    positions = told = 0
    layout = replace(layout, dtype=executor.dtype)
    for first in range(0, len(tokens), executor.config.context_tokens):
        text = tokens[first : first + executor.config.context_tokens]
        right = TeacherForcing(executor, layout.plain, len(text))
        coded = TeacherForcing(executor, layout, len(text))
        for start in range(0, len(text), STEP):
            part = text[start : start + STEP]
            sees_codes = bool(coded.coded_pages)
            reference = torch.log_softmax(right.read(part), dim=-1)
            found = divergences(reference, coded.read(part))
            if sees_codes:
                kl.append(found[0].cpu())
                same.append(found[1].cpu())
                positions += len(part)
                if 4 * positions // POSITIONS > told:
                    told = 4 * positions // POSITIONS
                    progress(min(told / 4, 1.0))
                if positions >= POSITIONS:
                    break
        errors.append(_worst_page(right, coded))
        if positions >= POSITIONS:
            break
    return Verdict(
        kl=torch.cat(kl).double().mean().item() if positions else 0.0,
        top1=torch.cat(same).double().mean().item() if positions else 1.0,
        error=torch.tensor(errors).max().item(),
        positions=positions,
        dtype=str(executor.dtype).removeprefix("torch."),
    )


def _worst_page(right: TeacherForcing, coded: TeacherForcing) -> float:
    """The largest relative error of a coded page: the root of its squares' sum, all heads."""
    pages = coded.session.pages
    places = [i for i, page in enumerate(pages) if page in coded.coded_pages]
    if not places:
        return 0.0
    size = coded.pool.page_size
    device = coded.executor.device
    tables = [torch.tensor(r.session.pages, device=device) for r in (right, coded)]
    length = (places[-1] + 1) * size
    worst = torch.zeros((), device=device)
    for layer in range(coded.pool.layout.layers):
        both = zip(
            right.pool.read(layer, tables[0], length),
            coded.pool.read(layer, tables[1], length),
            strict=True,
        )
        for exact, approximate in both:
            x, y = (unflatten(h.float(), 1, (-1, size))[:, places] for h in (exact, approximate))
            off = (x - y).square().sum((0, 2, 3)) / x.square().sum((0, 2, 3))
            worst = torch.maximum(worst, off.max())
    return worst.sqrt().item()
