"""Whether a codec may hold a model's keys and values: measured once, before it is used.

How much rounding a model's keys and values bear differs from model to model; that a codec does
well on most is no reason to trust it with this one. So text that comes with the engine is read with
coded KV and with KV in full precision, and what is predicted is compared. A codec that changes too
much is not used, and the next better one is looked at.

The arithmetic is float32 PyTorch's wherever there is memory for that: bfloat16's own rounding
changes predictions more than a good codec does.
"""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from engine.coded.codec import CODECS, Codec
from engine.coded.layout import CodedLayout
from engine.coded.verdict import STEP, Verdict, measure
from engine.device import free_bytes
from engine.executor import Executor
from engine.kv.layout import PageLayout

_HERE = Path(__file__).parent
TEXT = _HERE / "gate_text.txt"
CODE = tuple(
    sorted(
        file for folder in ("coded", "kv", "exact") for file in (_HERE.parent / folder).glob("*.py")
    )
)
"""A verdict holds for this code: with other code it is measured again."""
_SAMPLES, _SAMPLE_BYTES = 256, 4096
_WIDE = (torch.float32, torch.float64)


class Choice(NamedTuple):
    """A layout whose codec has passed, and what has to be said about it."""

    layout: PageLayout
    notices: tuple[str, ...]


class Gate:
    """Decides which codec one model may use."""

    def __init__(
        self,
        folder: Path,
        executor: Executor,
        make_wide: Callable[[], Executor],
        encode: Callable[[str], list[int]],
        cache: Path,
        progress: Callable[[str], None],
    ) -> None:
        """
        Args:
            folder: the model's.
            executor: of the model as it is loaded; it is measured itself where float32 has no room
                beside it.
            make_wide: loads the model in float32.
            encode: the model's tokenizer.
            cache: where verdicts are kept.
            progress: told of work that takes longer than a moment.
        """
        self._folder, self._executor, self._encode = folder, executor, encode
        self._make_wide = make_wide
        self._cache, self._progress = cache, progress

    def choose(self, wanted: CodedLayout) -> Choice:
        """The layout as it is, or with the next better codec that passes, or without any."""
        notices: list[str] = []
        layout = wanted
        while not (verdict := self.verdict(layout)).passes:
            refused, better = layout.codec.name, _better(layout.codec.name)
            notices.append(
                f"KV is kept in {better or 'full precision'}, not in {refused}, which changes what "
                f"this model predicts: {verdict}."
            )
            self._progress(notices[-1])
            if better is None:
                return Choice(layout.plain, tuple(notices))
            layout = replace(layout, codec=Codec.of(better, layout.head_dim))
        return Choice(layout, tuple(notices))

    def verdict(self, layout: CodedLayout) -> Verdict:
        """What the layout's codec does to this model: measured once, and remembered."""
        file = self._file(layout)
        verdict = _read(file)
        if verdict is None:
            verdict = self._measure(layout)
            _write(file, verdict)
        return verdict

    def _measure(self, layout: CodedLayout) -> Verdict:
        tokens = self._encode(TEXT.read_text(encoding="utf-8"))
        executor = self._arithmetic(layout, len(tokens))
        short = "" if executor.dtype in _WIDE else "; there is no room for it in float32"
        stage = f"Checking what KV in {layout.codec.name} does to the predictions, once{short}"

        def progress(share: float) -> None:
            self._progress(f"{stage} ({share:.0%})")

        self._progress(stage)
        try:
            return measure(executor, layout, tokens, progress)
        finally:
            if executor is not self._executor:
                executor.shutdown()
                del executor
                self._executor.free_caches()  # the pool is sized by what the driver says is free

    def _arithmetic(self, layout: CodedLayout, tokens: int) -> Executor:
        """The model in float32; as it is loaded, where that is as wide or memory is short."""
        config, device = self._executor.config, self._executor.device
        pools = 2 * layout.pages(tokens) * replace(layout, dtype=torch.float32).page_bytes
        # The logits of both readings, and what their comparison makes of them.
        logits = 6 * STEP * config.vocabulary * 4
        needed = 4 * config.parameters + pools + logits
        if self._executor.dtype in _WIDE or needed > free_bytes(device):
            return self._executor
        return self._make_wide()

    def _file(self, layout: CodedLayout) -> Path:
        """The file of a verdict, named after all that it depends on: model, page, code and text."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"{_content(self._folder)} {layout.page_size}".encode())
        for source in (*CODE, TEXT):
            digest.update(source.read_bytes())
        return self._cache / f"kv-{layout.codec.name}-{digest.hexdigest()}.json"


def _better(name: str) -> str | None:
    """The codec that is next closer to full precision."""
    names = list(CODECS)
    place = names.index(name)
    return names[place - 1] if place else None


def _content(folder: Path) -> str:
    """Says which model a folder holds, wherever it lies.

    Of large files it takes the size and 1 MiB in samples from all over: weights that were trained
    further differ everywhere.
    """
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(folder.iterdir()):
        if file.name not in ("config.json", "tokenizer.json") and file.suffix != ".safetensors":
            continue
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as stream:
            for at in range(0, size, max(size // _SAMPLES, _SAMPLE_BYTES)):
                stream.seek(at)
                digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _read(file: Path) -> Verdict | None:
    """The verdict that was kept; None where there is none, or where its file is broken."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        kl, top1, error = (float(kept[name]) for name in ("kl", "top1", "error"))
        return Verdict(kl, top1, error, int(kept["positions"]), str(kept["dtype"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(file: Path, verdict: Verdict) -> None:
    """Keep a verdict; where that is not possible it is measured by every process."""
    part = file.with_suffix(f".{os.getpid()}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(verdict._asdict()), encoding="utf-8")
        part.replace(file)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)
