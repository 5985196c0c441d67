"""The chart of drift: `python -m benchmarks.drift_plot drift.png int8.json int4.json`."""

import json
from pathlib import Path
from typing import Annotated, Any

import matplotlib
import typer

# A colour a codec (Okabe and Ito's, told apart by everyone).
COLOURS = {"int8": "#0072B2", "k8v4": "#009E73", "fp8": "#CC79A7", "int4": "#E69F00"}
MOVED = "#D55E00"


def draw(reports: list[dict[str, Any]], path: Path) -> None:
    """KL of each turn on one logarithmic axis: the codecs, and beside them what moving does."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5.5), layout="constrained")
    for report in reports:
        name = report["rows"][0]["system"]
        is_moved = "requantised" in name
        for is_refreshed in (False, True) if is_moved else (False,):
            kl = [row["kl"] for row in report["rows"] if row["refreshed"] == is_refreshed]
            label = f"{name} every turn" if is_moved else name
            axes.plot(
                range(1, len(kl) + 1), kl, ":" if is_refreshed else "-", linewidth=2,
                color=MOVED if is_moved else COLOURS[name],
                label=f"{label}, refreshed now and then" if is_refreshed else label,
            )  # fmt: skip
    noise = reports[0]["ratios"]["bf16_noise_kl"]
    axes.axhline(noise, color="#777777", linestyle="--", label="bfloat16's own noise, no codec")
    axes.set_yscale("log")
    axes.set_xlabel("turn (240 tokens each, after 960)")
    axes.set_ylabel("mean KL against KV in full precision")
    axes.set_title("Predictions with coded KV as a conversation grows", loc="left")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", frameon=False, fontsize="small", ncols=4)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def main(
    picture: Annotated[Path, typer.Argument(help="Where it is drawn.")],
    reports: Annotated[list[Path], typer.Argument(help="What `benchmarks.drift --json` wrote.")],
) -> None:
    """Draw reports of drift into one chart."""
    draw([json.loads(report.read_text(encoding="utf-8")) for report in reports], picture)


if __name__ == "__main__":
    typer.run(main)
