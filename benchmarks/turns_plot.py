"""The article's chart: time of a turn with and without a KV cache, its figures beside ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

if TYPE_CHECKING:
    from benchmarks.turns import Turn

# "Turn latency" of the article that this project started from: turn, then milliseconds. It names
# neither its machine nor its model, so the lines' shapes compare and their heights do not.
ARTICLE_TURNS = (1, 5, 10, 20, 50)
ARTICLE_MS = {
    "the article: no KV cache": (120, 480, 950, 1900, 4700),
    "the article: KV cache": (120, 150, 180, 220, 280),
}
# A colour a mode (Okabe and Ito's, told apart by everyone), and what it is called.
LOOKS = {
    "none": ("#D55E00", "no KV at all, whole turn"),
    "turn": ("#E69F00", "KV within a turn, to the first token"),
    "session": ("#0072B2", "KV of the session, to the first token"),
    "openvino": ("#009E73", "OpenVINO with prefix caching, to the first token"),
}


def draw(found: Mapping[tuple[int, str], "Turn"], path: Path) -> None:
    """Write the picture; one logarithmic axis for times from milliseconds to minutes."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5.5), layout="constrained")
    for mode, (colour, label) in LOOKS.items():
        turns = sorted(turn for turn, other in found if other == mode)
        if turns:
            costs = [found[turn, mode] for turn in turns]
            times = [cost.turn_s if mode == "none" else cost.ttft_s for cost in costs]
            marker = "o" if len(turns) < 10 else None
            axes.plot(turns, times, color=colour, marker=marker, linewidth=2, label=label)
    for (label, milliseconds), dashes in zip(ARTICLE_MS.items(), ("--", ":"), strict=True):
        times = [value / 1000 for value in milliseconds]
        axes.plot(ARTICLE_TURNS, times, dashes, color="#777777", marker=".", label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} s")
    axes.set_xlabel("turn (100 new tokens and 40 generated in each of ours)")
    axes.set_title("What a turn costs as a conversation grows", loc="left")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
