"""transformers: `generate` in bfloat16, as its documentation shows it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.protocol import Missing, Run, serve


class _Clock:
    """A streamer that notes when each token comes; the first call brings the prompt."""

    def __init__(self) -> None:
        self.started_s = time.perf_counter()
        self.steps: list[tuple[float, int]] = []
        self._prompt = True

    def put(self, _: Any) -> None:
        if not self._prompt:
            self.steps.append((time.perf_counter() - self.started_s, 1))
        self._prompt = False

    def end(self) -> None:
        pass


class Transformers:
    """A GGUF file (read by transformers' own converter) or a folder."""

    def __init__(self, model: Path, threads: int, options: dict[str, Any]) -> None:
        try:
            import torch
            import transformers
        except ImportError as error:
            raise Missing(f"transformers cannot be imported: {error}") from error
        torch.set_num_threads(threads)
        self._torch = torch
        source: dict[str, Any] = {"pretrained_model_name_or_path": str(model)}
        if model.is_file():
            source = {"pretrained_model_name_or_path": str(model.parent), "gguf_file": model.name}
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            **source, dtype=getattr(torch, options.get("dtype", "bfloat16"))
        ).eval()
        self.about = {"version": transformers.__version__}

    def choose(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> dict[str, Any]:
        self.run(prompts, new_tokens)
        return {}

    def run(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Run:
        (prompt,) = prompts
        ids = self._torch.tensor([list(prompt)])
        clock = _Clock()
        with self._torch.inference_mode():
            out = self._model.generate(
                ids, attention_mask=self._torch.ones_like(ids), do_sample=False,
                max_new_tokens=new_tokens, min_new_tokens=new_tokens, streamer=clock,
            )  # fmt: skip
        return Run([out[0, len(prompt) :].tolist()], clock.steps)

    def logits(self, tokens: Sequence[int], chunk: int) -> Any:
        rows, cache = [], None
        with self._torch.inference_mode():
            for start in range(0, len(tokens), chunk):
                ids = self._torch.tensor([list(tokens[start : start + chunk])])
                out = self._model(ids, past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                rows.append(out.logits[0].float())
        return self._torch.cat(rows).numpy()


if __name__ == "__main__":
    serve(Transformers)
