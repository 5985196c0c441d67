"""Whether coded KV drifts: `python -m benchmarks.drift --kv-dtype int8 --turns 30`.

A conversation whose text is given is computed turn by turn in float32, with coded KV as the engine
makes it and with KV in full precision, and what is predicted at every position is compared: the
mean KL(full precision || coded) of a turn, and how often both find the same token likeliest.

Two conversations have the same text, a row a turn each:

    refreshed false    each page is coded once, and nothing is done about what is computed from it
    refreshed true     the same, with an exact refresh after a turn that leaves `--refresh-tokens`
                       approximate tokens or more, as the engine makes it when nobody waits

Before the first turn comes an opening of up to `OPENING` tokens. As long as most of a context lies
in the window, KL grows with it from nothing, which says nothing about the turns.

`--requantise` is the contrast. After every turn, all coded keys are decoded, moved by the turn's
number of positions, and coded again, as engines do that cut a full history at its beginning and
move up what is left. (Decoded and coded again as they are, keys come out as the same codes: it
takes a change in between for the errors to pile up.)

`kl_slope` is the least-squares slope of KL over the turns without refresh, with its 95% interval by
Student's t distribution. KL depends on what a turn's text says, so the interval is wide. The text
cancels out in `excess_slope`, of the difference to the same turn with refresh. `bf16_noise_kl` is
what bfloat16 makes of the same text without a codec, computed in steps of two sizes.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import torch
import typer
from scipy import stats

from benchmarks.engine import MODEL
from benchmarks.moving import MovingKeys
from benchmarks.prose import documents
from benchmarks.report import Report
from engine import EngineConfig
from engine.coded.codec import CODECS, Codec
from engine.coded.layout import CodedLayout
from engine.coded.teacher_forcing import TeacherForcing, divergences
from engine.executor import Executor
from engine.kv.layout import PageLayout
from engine.model_config import ModelConfig
from engine.reference.executor import ReferenceExecutor
from engine.reference.weights import read_weights
from engine.tokenizer import Tokenizer
from engine.weight_scheme import SchemedTensors
from engine.weights import Tensors, model_folder, read_json
from host import environment

OPENING = 960
STEPS = 2  # of a turn
NOISE_STEPS = (128, 37)
NOISE_TOKENS = 2048
PAGE_SIZE = 16
SHOWN_TOKENS = 8000


class Turn(NamedTuple):
    """How far a conversation is from full precision, over the positions of a turn."""

    kl: float
    top1_agreement: float

    @staticmethod
    def of(parts: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> "Turn":
        kl, same = (torch.cat(column).double().mean() for column in zip(*parts, strict=True))
        return Turn(kl.item(), same.item())


class Slope(NamedTuple):
    """Of a straight line through values, one a turn, with its 95% interval."""

    slope: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> "Slope":
        line = stats.linregress(range(len(values)), values)
        reach = stats.t.ppf(0.975, len(values) - 2) * line.stderr
        return Slope(float(line.slope), float(line.slope - reach), float(line.slope + reach))


class Model(NamedTuple):
    """A model's files."""

    folder: Path
    config: ModelConfig

    @staticmethod
    def find(model: Path) -> "Model":
        folder = model_folder(str(model), None, typer.echo)
        return Model(folder, ModelConfig.from_json(read_json(folder, "config.json")))

    def executor(self, dtype: torch.dtype) -> Executor:
        with Tensors(self.folder) as tensors:
            schemed = SchemedTensors(tensors, "auto")
            weights = read_weights(self.config, schemed, torch.device("cpu"), dtype)
        return ReferenceExecutor(self.config, weights)

    def layout(self, dtype: torch.dtype, codec: Codec | None = None) -> PageLayout:
        c = self.config
        plain = PageLayout(c.layers, c.kv_heads, c.head_dim, PAGE_SIZE, dtype)
        return CodedLayout.of(plain, codec) if codec else plain

    def tokens(self, text: str, turns_tokens: int) -> list[int]:
        """A text's tokens: those of the turns and, where there are more, of an opening.

        Raises:
            typer.BadParameter: the text or the model's context is too short.
        """
        tokens = Tokenizer(self.folder).encode(text)
        most = min(len(tokens), self.config.context_tokens)
        if most < turns_tokens:
            raise typer.BadParameter(
                f"The turns have {turns_tokens:,} tokens, the text has {len(tokens):,}, and the "
                f"model's context is {self.config.context_tokens:,}."
            )
        return tokens[: min(most, turns_tokens + OPENING)]


def conversations(
    model: Model, codec: Codec, tokens: Sequence[int], turns: int, turn_tokens: int,
    refresh_tokens: int, requantise: bool, progress: Callable[[str], None],
) -> dict[bool, list[Turn]]:  # fmt: skip
    """The turns without (False) and with refresh (True)."""
    executor = model.executor(torch.float32)
    frames = {is_refreshed: MovingKeys(codec, model.config) for is_refreshed in (False, True)}
    right = TeacherForcing(executor, model.layout(torch.float32), len(tokens))
    coded = {
        is_refreshed: TeacherForcing(
            executor,
            model.layout(torch.float32, frame.codec if requantise else codec),
            len(tokens),
            refreshes=is_refreshed,
        )
        for is_refreshed, frame in frames.items()
    }
    found: dict[bool, list[Turn]] = {False: [], True: []}
    opening, step = len(tokens) - turns * turn_tokens, -(-turn_tokens // STEPS)
    cuts = [*range(0, opening, turn_tokens), *range(opening, len(tokens) + 1, turn_tokens)]
    for start, stop in pairwise(cuts):
        parts: dict[bool, list[tuple[torch.Tensor, torch.Tensor]]] = {False: [], True: []}
        for at in range(start, stop, step):
            part = tokens[at : min(at + step, stop)]
            reference = torch.log_softmax(right.read(part), dim=-1)
            for is_refreshed, forced in coded.items():
                parts[is_refreshed].append(divergences(reference, forced.read(part)))
        for is_refreshed, forced in coded.items():
            if start >= opening:
                found[is_refreshed].append(Turn.of(parts[is_refreshed]))
            if is_refreshed and forced.approximate_tokens >= refresh_tokens:
                forced.refresh()
            if requantise:
                frames[is_refreshed].move(forced, turn_tokens)
        progress(
            f"{stop:,} tokens: " + ", ".join(f"KL {Turn.of(p).kl:.2g}" for p in parts.values())
        )
    return found


def noise(model: Model, tokens: Sequence[int]) -> Turn:
    """What two ways of the same arithmetic in bfloat16 differ by."""
    executor = model.executor(torch.bfloat16)
    logits = []
    for step in NOISE_STEPS:
        forced = TeacherForcing(executor, model.layout(torch.bfloat16), len(tokens))
        parts = [tokens[at : at + step] for at in range(0, len(tokens), step)]
        logits.append(torch.cat([forced.read(part) for part in parts]))
    return Turn.of([divergences(torch.log_softmax(logits[0], dim=-1), logits[1])])


def sizes(model: Model, codec: Codec, tokens: int) -> dict[str, float]:
    """Bytes against bfloat16 without a codec; what is not coded is in bfloat16 too."""
    plain, coded = model.layout(torch.bfloat16), model.layout(torch.bfloat16, codec)

    def pool(tokens: int) -> float:
        return coded.units(tokens) * coded.unit_bytes / (plain.units(tokens) * plain.unit_bytes)

    return {
        "coded_page_bytes_vs_bf16": coded.unit_bytes / plain.unit_bytes,
        "pool_bytes_vs_bf16": pool(SHOWN_TOKENS),
        "pool_bytes_vs_bf16_measured": pool(tokens),
    }


def summary(found: dict[bool, list[Turn]]) -> dict[str, float]:
    """Means and slopes of the turns without refresh, and the means of those with it."""
    kl = {is_refreshed: [turn.kl for turn in turns] for is_refreshed, turns in found.items()}
    slope = Slope.of(kl[False])
    excess = Slope.of([a - b for a, b in zip(kl[False], kl[True], strict=True)])
    return {
        "kl_mean": fmean(kl[False]),
        "top1_mean": fmean(turn.top1_agreement for turn in found[False]),
        "kl_slope": slope.slope,
        "kl_slope_low": slope.low,
        "kl_slope_high": slope.high,
        "excess_slope": excess.slope,
        "excess_slope_low": excess.low,
        "excess_slope_high": excess.high,
        "kl_mean_refreshed": fmean(kl[True]),
        "top1_mean_refreshed": fmean(turn.top1_agreement for turn in found[True]),
    }


def main(
    kv_dtype: Annotated[str, typer.Option(help=f"One of {', '.join(CODECS)}.")] = "int8",
    turns: Annotated[int, typer.Option(min=3)] = 30,
    turn_tokens: Annotated[int, typer.Option(help="Tokens of a turn.", min=2)] = 240,
    text: Annotated[Path | None, typer.Option(help="Prose; else the sample library's.")] = None,
    refresh_tokens: Annotated[
        int, typer.Option(help="Approximate tokens that a refresh is made at.", min=1)
    ] = EngineConfig.refresh_tokens,
    requantise: Annotated[bool, typer.Option(help="Move and code again after each turn.")] = False,
    model: Annotated[Path, typer.Option(help="A folder or a GGUF file.")] = MODEL,
    json: Annotated[Path | None, typer.Option(help="Write the figures here.")] = None,
) -> None:
    """Measure how far predictions with coded KV are from full precision as turns go by."""
    environment.prepare()
    if kv_dtype not in CODECS:
        raise typer.BadParameter(f"{kv_dtype} is none of {', '.join(CODECS)}")
    files = Model.find(model)
    codec = Codec.of(kv_dtype, files.config.head_dim)
    prose = text.read_text(encoding="utf-8") if text else "\n\n".join(documents().values())
    tokens = files.tokens(prose, turns * turn_tokens)
    found = conversations(
        files, codec, tokens, turns, turn_tokens, refresh_tokens, requantise, typer.echo
    )
    report, name = Report(), f"{kv_dtype}, requantised" if requantise else kv_dtype
    for is_refreshed, measured in found.items():
        for number, turn in enumerate(measured, 1):
            context = len(tokens) - (turns - number) * turn_tokens
            report.add(
                f"turn {number}", name, **turn._asdict(), refreshed=is_refreshed,
                context_tokens=context,
            )  # fmt: skip
    bf16 = noise(files, tokens[:NOISE_TOKENS])
    figures: dict[str, Any] = sizes(files, codec, len(tokens)) | summary(found)
    report.ratios = figures | {"bf16_noise_kl": bf16.kl, "bf16_noise_top1": bf16.top1_agreement}
    report.show("Coded KV against full precision, turn by turn")
    report.write(json)


if __name__ == "__main__":
    typer.run(main)
