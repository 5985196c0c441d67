"""What the benchmark of drift makes of what it measures, and that its contrast does drift."""

import json
from pathlib import Path

import pytest
import torch
import typer

from benchmarks import drift
from benchmarks.drift import Model, Slope, Turn, sizes, summary
from benchmarks.moving import MovingKeys
from engine.coded.codec import CODECS, Codec
from engine.coded.teacher_forcing import TeacherForcing
from engine.model_config import ModelConfig, Rope

SMOL = ModelConfig(
    "LlamaForCausalLM", layers=30, hidden=576, intermediate=1536, heads=9, kv_heads=3, head_dim=64,
    vocabulary=49152, context_tokens=8192, norm_eps=1e-5, rope=Rope(), tied_head=True,
    qkv_bias=False, output_bias=False, mlp_bias=False, qk_norm=False, sliding_window=None,
)  # fmt: skip
OPENING, TURNS, TURN_TOKENS = 176, 3, 16


@pytest.fixture(scope="module")
def model(chat_model: str) -> Model:
    return Model.find(Path(chat_model))


def test_a_slope_has_the_interval_of_students_t() -> None:
    exact = Slope.of([1.0, 3.0, 5.0, 7.0])
    assert exact == pytest.approx((2.0, 2.0, 2.0))
    found = Slope.of([1.0, 2.0, 1.3, 3.75, 2.25])
    # Residuals of 2.06 - .425 * 2 + .425 i; the squares' sum 2.791 leaves .305 for the slope.
    assert found.slope == pytest.approx(0.425)
    assert found.high - found.slope == pytest.approx(3.18245 * 0.30500, rel=1e-3)
    assert found.slope - found.low == pytest.approx(found.high - found.slope)


def test_the_text_cancels_out_in_the_slope_beside_the_refreshed_turns() -> None:
    texts = [5.0, 1.0, 9.0, 2.0, 7.0]
    kept = [Turn(text + 0.1 * number, 0.9) for number, text in enumerate(texts)]
    made = summary({False: kept, True: [Turn(text, 1.0) for text in texts]})
    assert made["excess_slope"] == pytest.approx(0.1)
    assert made["excess_slope_low"] == pytest.approx(0.1)
    assert made["kl_slope_low"] < 0 < made["kl_slope_high"]
    assert made["top1_mean"] == pytest.approx(0.9)
    assert made["top1_mean_refreshed"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("codec", "page", "pool"),
    [("int8", 0.54, 0.55), ("fp8", 0.51, 0.52), ("k8v4", 0.42, 0.43), ("int4", 0.30, 0.31)],
)
def test_a_codec_weighs_no_more_than_promised(codec: str, page: float, pool: float) -> None:
    made = sizes(Model(Path(), SMOL), Codec.of(codec, SMOL.head_dim), 1000)
    assert page - 0.03 < made["coded_page_bytes_vs_bf16"] <= page
    assert made["coded_page_bytes_vs_bf16"] < made["pool_bytes_vs_bf16"] <= pool
    assert made["pool_bytes_vs_bf16_measured"] > made["pool_bytes_vs_bf16"]


def test_a_text_gives_an_opening_of_what_the_turns_leave(model: Model) -> None:
    text = "One word after another. " * 60
    tokens = model.tokens(text, 100)
    assert len(tokens) > 200
    assert model.tokens(text, len(tokens)) == tokens
    assert len(model.tokens(text * 10, 100)) == 100 + drift.OPENING
    with pytest.raises(typer.BadParameter, match="the text has"):
        model.tokens(text, 5000)


def _keys(forced: TeacherForcing) -> torch.Tensor:
    table = torch.tensor(forced.coded_pages)
    pool = forced.pool
    read = [pool.read(layer, table, len(table) * 16)[0] for layer in range(pool.layout.layers)]
    return torch.stack(read)


@pytest.mark.parametrize("name", CODECS)
def test_only_keys_that_move_drift(name: str, model: Model) -> None:
    executor = model.executor(torch.float32)
    moving = MovingKeys(Codec.of(name, model.config.head_dim), model.config)
    forced = TeacherForcing(executor, model.layout(torch.float32, moving.codec), 208)
    forced.read(list(range(1000, 1208)))
    slots = [page - forced.pool.frames for page in forced.coded_pages]
    assert len(slots) == 4
    before, keys = forced.pool.slots[:, slots].clone(), _keys(forced)
    for _ in range(3):
        moving.move(forced, 0)
    assert (forced.pool.slots[:, slots] != before).float().mean() < 1e-3

    def error(moves: int) -> float:
        for _ in range(moves):
            moving.move(forced, 240)
        return ((_keys(forced) - keys).norm() / keys.norm()).item()

    once = error(1)
    assert 0 < once < 0.2, "the same keys, once more rounded"
    assert error(15) > 2.5 * once, "sixteen roundings are about four times as far away"


def test_a_run_writes_a_row_a_turn_and_refreshes_undo_the_contrast(
    chat_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "OPENING", OPENING)
    monkeypatch.setattr(drift, "NOISE_TOKENS", 96)
    text, file = tmp_path / "text.txt", tmp_path / "drift.json"
    text.write_text("\n\n".join(drift.documents().values()), encoding="utf-8")
    drift.main(
        "int8", TURNS, TURN_TOKENS, text, refresh_tokens=16, requantise=True,
        model=Path(chat_model), json=file,
    )  # fmt: skip
    report = json.loads(file.read_text())
    assert [row["refreshed"] for row in report["rows"]] == [False] * TURNS + [True] * TURNS
    assert [row["case"] for row in report["rows"][:TURNS]] == ["turn 1", "turn 2", "turn 3"]
    kept, refreshed = report["rows"][TURNS - 1], report["rows"][-1]
    assert kept["context_tokens"] == OPENING + TURNS * TURN_TOKENS
    assert kept["kl"] > 1.2 * refreshed["kl"] > 0
    assert 0.9 < kept["top1_agreement"] <= 1
    ratios = report["ratios"]
    assert ratios["kl_slope_low"] < ratios["kl_slope"] < ratios["kl_slope_high"]
    assert 0.0001 < ratios["bf16_noise_kl"] < 0.01
