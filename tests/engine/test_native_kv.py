"""The native decoder on coded pages, against the torch backend in float32 on the same numbers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.coded.codec import CODECS, Codec
from engine.coded.layout import CodedLayout
from engine.coded.pool import CodedPool
from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool
from engine.kv.session import Session
from engine.model_config import ModelConfig
from engine.native import build
from engine.native.build import Variant
from engine.native.coded_pool import NativeCodedPool
from engine.native.executor import NativeExecutor, obstacle
from engine.native.weights import NativeWeights
from engine.reference.executor import ReferenceExecutor
from engine.reference.weights import read_weights
from engine.step import Part, Step
from engine.weight_scheme import SchemedTensors
from engine.weights import Tensors, read_json

pytestmark = pytest.mark.skipif(not build.variants(), reason="no native kernels for this CPU")


def _config(folder: Path) -> ModelConfig:
    return ModelConfig.from_json(read_json(folder, "config.json"))


def _native(folder: Path, variant: Variant | None = None, threads: int = 2) -> NativeExecutor:
    with Tensors(folder) as tensors:
        weights = NativeWeights(_config(folder), SchemedTensors(tensors, "bfloat16"))
    return NativeExecutor(build.load(variant), _config(folder), weights, threads)


def _plain(config: ModelConfig, page_size: int, dtype: torch.dtype) -> PageLayout:
    return PageLayout(config.layers, config.kv_heads, config.head_dim, page_size, dtype)


def _step(
    parts: Sequence[tuple[torch.Tensor, int, torch.Tensor]], page_size: int, every: bool = True
) -> Step:
    """Of (tokens, position of the first, table) for each sequence."""
    made = []
    for row, (tokens, start, table) in enumerate(parts):
        session = Session("me", tokens=[0] * start + tokens.tolist())
        session.pages.extend(table.tolist())
        session.pages.take_row(row)
        made.append(Part(session, start, len(tokens), all_logits=every))
    return Step.of(made, page_size)


def _logits(
    executor: NativeExecutor | ReferenceExecutor, step: Step, pool: PagePool
) -> torch.Tensor:
    return executor.launch(step, pool).logits()


def _tokens(count: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(17, 1000, (count,), generator=torch.Generator().manual_seed(seed))


def _layer_by_layer(executor: NativeExecutor, step: Step, pools: list[PagePool]) -> torch.Tensor:
    x = executor.embed(step.tokens.tolist())
    for layer, pool in enumerate(pools):
        x = executor.run_layer(layer, x, step, pool)
    return x


@pytest.mark.parametrize("rows", [1, 128])
@pytest.mark.parametrize("threads", [1, 2])
def test_layers_one_by_one_write_the_same_bits_as_a_whole_pass(
    rows: int, threads: int, make_tiny: Callable[..., Path]
) -> None:
    folder = make_tiny()
    whole, split = _native(folder), _native(folder, threads=threads)
    layout = _plain(whole.config, 16, torch.bfloat16)
    one = replace(layout, layers=1)
    pool, pools = whole.make_pool(layout, 24), [split.make_pool(one, 24) for _ in range(2)]
    table = torch.randperm(24, generator=torch.Generator().manual_seed(2))
    tokens = _tokens(384)
    for start in [0, *range(128, 128 + 2 * rows, rows)]:
        step = _step([(tokens[start : start + (rows if start else 128)], start, table)], 16)
        _logits(whole, step, pool)
        _layer_by_layer(split, step, pools)
    for layer, part in enumerate(pools):
        for mine, theirs in zip(
            pool.read(layer, table, start + rows), part.read(0, table, start + rows), strict=True
        ):
            assert torch.equal(mine, theirs)


# -- mixed pages -----------------------------------------------------------------------------

LENGTH = 333  # of each sequence: no multiple of anything
WINDOW = 40  # newest positions, whose pages are never coded
CODED: dict[str, Callable[[int], bool]] = {
    "the first ones": lambda page: page < 5,
    "all but the first": lambda page: page > 0,
    "all but a single one": lambda page: page != 3,
    "every second one": lambda page: page % 2 == 0,
}
PLAIN: dict[str, Callable[[int], bool]] = {"none": lambda _: False}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "head_dim 32": ("Llama", {"head_dim": 32}),
    "head_dim 64, three heads a group": (
        "Llama",
        {"head_dim": 64, "hidden_size": 96, "num_attention_heads": 6},
    ),
    "head_dim 128, one KV head": ("Llama", {"head_dim": 128, "num_key_value_heads": 1}),
    "head_dim 96, a sliding window": (
        "Mistral",
        {"head_dim": 96, "num_attention_heads": 2, "sliding_window": 100},
    ),
}


class _Pair:
    """The native decoder on mixed pages beside the torch backend in float32 on their numbers.

    Two sequences: their earlier tokens are computed by the torch backend, and taken over by both.
    """

    def __init__(self, folder: Path, codec: str, page_size: int) -> None:
        self.config, self.folder, self.page_size = _config(folder), folder, page_size
        with Tensors(folder) as tensors:
            schemed = SchemedTensors(tensors, "bfloat16")
            weights = read_weights(self.config, schemed, torch.device("cpu"), torch.float32)
        self.torch = ReferenceExecutor(self.config, weights)
        self.codec = Codec.of(codec, self.config.head_dim)
        self.layout = CodedLayout.of(_plain(self.config, page_size, torch.bfloat16), self.codec)
        self.count = self.layout.pages(LENGTH)
        self.tokens = [_tokens(LENGTH, seed) for seed in (1, 2)]
        plain = replace(self.layout.plain, dtype=torch.float32)
        self.exact = self.torch.make_pool(plain, 2 * self.count, rows=2)
        self.tables = torch.arange(2 * self.count).view(2, -1)
        parts = [(t, 0, table) for t, table in zip(self.tokens, self.tables, strict=True)]
        _logits(self.torch, _step(parts, page_size, every=False), self.exact)
        self.exact.buffer.view(torch.float32).copy_(
            self.exact.buffer.view(torch.float32).bfloat16()
        )

    def mixed(
        self, native: NativeExecutor, coded: Callable[[int], bool]
    ) -> tuple[PagePool, CodedPool, torch.Tensor]:
        """The same numbers for the torch backend and for the native one, with its tables."""
        last = (LENGTH - WINDOW) // self.page_size
        is_coded = [page < last and coded(page) for page in range(self.count)]
        expected = self.torch.make_pool(self.exact.layout, self.exact.frames, rows=3)
        expected.buffer.copy_(self.exact.buffer)
        pool = native.make_pool(self.layout, 4 * self.count, rows=3)
        assert isinstance(pool, CodedPool)
        pool.slots.fill_(255)  # not numbers: nothing may be read that was never written
        frames = torch.randperm(2 * self.count, generator=torch.Generator().manual_seed(3))
        rows = torch.arange(self.page_size)
        tables = frames.view(2, -1).clone()
        for page, frame in zip(self.tables.flatten().tolist(), frames.tolist(), strict=True):
            for layer in range(self.config.layers):
                keys, values = self.exact.keys[layer, page], self.exact.values[layer, page]
                slots = frame * self.page_size + rows
                pool.write(layer, slots, keys.transpose(0, 1), values.transpose(0, 1))
                if is_coded[page % self.count]:
                    c = self.codec
                    expected.keys[layer, page] = c.keys.decode(c.keys.encode(keys))
                    expected.values[layer, page] = c.values.decode(c.values.encode(values))
        free = pool.frames + 2 * self.count * self.layout.slots_per_frame
        for sequence in range(2):
            for page in range(self.count):
                if is_coded[page]:
                    pool.put(pool.encode([int(tables[sequence, page])]), [free])
                    tables[sequence, page] = free
                    free += 1
        return expected, pool, tables

    def errors(
        self,
        native: NativeExecutor,
        expected: PagePool,
        pool: PagePool,
        tables: torch.Tensor,
        steps: Iterable[Sequence[tuple[int, int, int]]],
    ) -> list[float]:
        """Largest differences of logits, as shares of the largest logit.

        Args:
            steps: each a batch of (sequence, first position, rows).
        """
        found = []
        for step in steps:
            parts = [(self.tokens[n][start : start + rows], start) for n, start, rows in step]
            batches = [
                _step(
                    [(*part, t[n]) for part, (n, _, _) in zip(parts, step, strict=True)],
                    self.page_size,
                )
                for t in (self.tables, tables)
            ]
            whole = _logits(self.torch, batches[0], expected)
            logits = _logits(native, batches[1], pool)
            found.append(float((logits - whole).abs().max() / whole.abs().max()))
        return found


LIMIT = 0.02  # of the largest logit; plain pages in bfloat16 stay below it as well
LAST = LENGTH - 1
STEPS: list[list[tuple[int, int, int]]] = [
    *([(0, LENGTH - rows, rows)] for rows in (1, 2, 3, 4, 5, 6, WINDOW)),
    [(0, LENGTH - 2, 2), (1, LENGTH - 5, 5), (0, LAST, 1)],
    [(1, LAST, 1)],
]


@pytest.fixture(scope="module")
def pairs(make_tiny: Callable[..., Path]) -> Callable[[str, str, int], _Pair]:
    folders: dict[str, Path] = {}

    def get(shape: str, codec: str, page_size: int) -> _Pair:
        if shape not in folders:
            family, changes = SHAPES[shape]
            settings = {"initializer_range": 0.1, "vocab_size": 1024, **changes}
            folders[shape] = make_tiny(family, **settings)
        return _Pair(folders[shape], codec, page_size)

    return get


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("shape", SHAPES)
def test_mixed_pages_give_the_logits_of_their_numbers(
    shape: str, codec: str, pairs: Callable[[str, str, int], _Pair]
) -> None:
    for page_size in (16, 32):
        pair = pairs(shape, codec, page_size)
        for variant in build.variants():
            native = _native(pair.folder, variant)
            for name, coded in (PLAIN | CODED).items():
                errors = pair.errors(native, *pair.mixed(native, coded), STEPS)
                assert max(errors) < LIMIT, (variant, page_size, name)


def test_the_real_model_reads_mixed_pages(tokenizer_files: Path) -> None:
    pair = _Pair(tokenizer_files, "k8v4", 16)
    native = _native(pair.folder)
    for name in ("all but the first", "every second one"):
        errors = pair.errors(native, *pair.mixed(native, CODED[name]), [STEPS[0], STEPS[6]])
        assert max(errors) < LIMIT, name


def _swap(store: Any, _: list[torch.Tensor]) -> None:
    store.scale_at[:] = list(store.scale_at)[::-1]


def _queries_not_rotated(store: Any, kept: list[torch.Tensor]) -> None:
    kept.append(torch.eye(64))
    store.hadamard = kept[-1].data_ptr()


def _values_not_rotated_back(store: Any, kept: list[torch.Tensor]) -> None:
    kept.append(torch.eye(64))
    store.inverse = kept[-1].data_ptr()


def _next_page(store: Any, _: list[torch.Tensor]) -> None:
    store.frames -= 1


@pytest.mark.parametrize(
    ("codec", "fault"),
    [
        ("int8", _swap),
        ("k8v4", _swap),
        ("fp8", _swap),
        ("int4", _queries_not_rotated),
        ("int4", _values_not_rotated_back),
        ("k8v4", _values_not_rotated_back),
        ("int8", _next_page),
    ],
)
def test_a_fault_is_far_outside_of_the_limit(
    codec: str, fault: Callable[..., None], pairs: Callable[[str, str, int], _Pair]
) -> None:
    pair = pairs("head_dim 64, three heads a group", codec, 16)
    native = _native(pair.folder)
    expected, pool, tables = pair.mixed(native, CODED["all but the first"])
    assert isinstance(pool, NativeCodedPool)
    kept: list[torch.Tensor] = []
    fault(pool.store, kept)
    for error in pair.errors(native, expected, pool, tables, [STEPS[0], STEPS[6]]):
        assert error > 3 * LIMIT


def test_any_number_of_threads_gives_the_same_bits(
    pairs: Callable[[str, str, int], _Pair],
) -> None:
    for codec in CODECS:
        pair = pairs("head_dim 64, three heads a group", codec, 16)
        found = []
        for threads in (1, 2, 3):
            native = _native(pair.folder, threads=threads)
            _, pool, tables = pair.mixed(native, CODED["all but the first"])
            step = _step([(pair.tokens[0][-40:], LENGTH - 40, tables[0])], 16)
            more = _step([(pair.tokens[1][-1:], LENGTH - 1, tables[1])], 16)
            found.append((_logits(native, step, pool), _logits(native, more, pool)))
        for other in found[1:]:
            assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True)), codec


def test_what_the_kernels_cannot_read_is_said() -> None:
    odd = ModelConfig.from_json(
        {
            "architectures": ["LlamaForCausalLM"], "num_attention_heads": 2, "head_dim": 80,
            "vocab_size": 64, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
            "hidden_size": 160, "intermediate_size": 96, "num_hidden_layers": 1,
        }
    )  # fmt: skip
    assert obstacle(odd, 16) is None
    assert "not a multiple of 32" in str(obstacle(odd, 16, "int8"))
    for codec in CODECS:
        assert obstacle(replace(odd, head_dim=64, heads=1), 16, codec) is None


# -- coding ----------------------------------------------------------------------------------


def _filled(native: NativeExecutor, layout: CodedLayout, frames: int) -> CodedPool:
    """A pool of numbers of several sizes, with a few large channels, as keys have them."""
    generator = torch.Generator().manual_seed(5)
    pool = native.make_pool(layout, frames)
    assert isinstance(pool, CodedPool)
    for half in (pool.keys, pool.values):
        half.copy_(torch.randn(half.shape, generator=generator) * 2)
    rows = torch.arange(layout.page_size)
    for frame, factor in enumerate((1e-6, 1e4, 0.0, 1.0)):
        k = torch.randn(len(rows), layout.kv_heads, layout.head_dim, generator=generator) * factor
        k[..., 3] *= 30
        for layer in range(layout.layers):
            pool.write(layer, frame * len(rows) + rows, k, k.flip(-1))
    return pool


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("head_dim", [32, 64, 96, 128])
def test_pages_are_coded_as_pytorch_codes_them(
    head_dim: int, codec: str, make_tiny: Callable[..., Path]
) -> None:
    folder = make_tiny(head_dim=head_dim, vocab_size=64)
    for variant in build.variants():
        native = _native(folder, variant)
        for page_size in (16, 48):
            chosen = Codec.of(codec, head_dim)
            plain = _plain(native.config, page_size, torch.bfloat16)
            layout = CodedLayout.of(plain, chosen)
            pool, pages = _filled(native, layout, 7), [5, 0, 3, 2, 1]
            mine, theirs = pool.encode(pages), CodedPool.encode(pool, pages)
            if not chosen.keys.rotates and not chosen.values.rotates:
                assert torch.equal(mine, theirs), (variant, page_size)
                continue
            numbers = [_decoded(pool, coded) for coded in (mine, theirs)]
            for one, other, coding in zip(*numbers, (chosen.keys, chosen.values), strict=True):
                # A sum's last bit decides which of two codes a number on the edge gets.
                step = other.abs().amax(-1, keepdim=True) * (0.6 if coding.rotates else 0.0)
                assert ((one - other).abs() <= step).all(), (variant, page_size)
                assert (one != other).float().mean() < 0.02, (variant, page_size)


def _decoded(pool: CodedPool, coded: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What slots hold, read back through the first slot of a pool: [layers, pages, ...]."""
    halves: list[list[torch.Tensor]] = [[], []]
    table = torch.tensor([pool.frames])
    for layer in range(pool.layout.layers):
        for page in range(coded.shape[1]):
            pool.put(coded[:, page : page + 1], [pool.frames])
            for half, rows in zip(halves, pool.read(layer, table, pool.page_size), strict=True):
                half.append(rows.float())
    return torch.stack(halves[0]), torch.stack(halves[1])
