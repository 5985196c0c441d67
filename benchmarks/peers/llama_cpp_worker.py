"""llama.cpp by llama-cpp-python: its own decode calls, without the wrapper's samplers."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.protocol import Missing, Run, serve


class LlamaCpp:
    """A GGUF file in llama.cpp, with and without flash attention.

    Batches of 512 (the default), logits of the last position only. Greedy choice is an argmax over
    the logits, which is the least that any caller pays.
    """

    def __init__(self, model: Path, threads: int, options: dict[str, Any]) -> None:
        try:
            import llama_cpp
        except ImportError as error:
            raise Missing(f"llama-cpp-python cannot be imported: {error}") from error
        self._library = llama_cpp
        self._settings = {
            "model_path": str(model), "n_threads": threads, "n_threads_batch": threads,
            "verbose": False,
        }  # fmt: skip
        self._context_tokens = int(options.get("context_tokens", 8192))
        self._opened: dict[bool, Any] = {}
        self._flash = False
        self._scoring: Any = None
        self.about = {"version": llama_cpp.__version__}

    def choose(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> dict[str, Any]:
        """Take the quicker of flash attention on and off for runs of this size."""
        taken_s = {}
        for flash in (False, True):
            self._flash = flash
            taken_s[flash] = self.run(prompts, new_tokens).steps[-1][0]
        self._flash = min(taken_s, key=taken_s.__getitem__)
        return {"flash_attention": self._flash}

    def run(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Run:
        import numpy

        (prompt,) = prompts
        llama = self._library
        context = self._context(self._flash)
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        answer: list[int] = []
        steps: list[tuple[float, int]] = []
        started = time.perf_counter()
        for start in range(0, len(prompt), 512):
            self._decode(context, prompt[start : start + 512])
        while True:
            pointer = llama.llama_get_logits_ith(context, -1)
            logits = numpy.ctypeslib.as_array(pointer, shape=(self._vocabulary,))
            answer.append(int(logits.argmax()))
            steps.append((time.perf_counter() - started, 1))
            if len(answer) == new_tokens:
                return Run([answer], steps)
            self._decode(context, answer[-1:])

    def logits(self, tokens: Sequence[int], chunk: int) -> Any:
        if self._scoring is None:
            self._scoring = self._library.Llama(**self._settings, n_ctx=2048, logits_all=True)
        self._scoring.reset()
        for start in range(0, len(tokens), chunk):
            self._scoring.eval(tokens[start : start + chunk])
        return self._scoring.scores[: len(tokens)]

    def _context(self, flash: bool) -> Any:
        if flash not in self._opened:
            self._opened[flash] = self._library.Llama(
                **self._settings, n_ctx=self._context_tokens, flash_attn=flash
            )
            self._vocabulary = self._opened[flash].n_vocab()
        return self._opened[flash].ctx

    def _decode(self, context: Any, tokens: Sequence[int]) -> None:
        array = (self._library.llama_token * len(tokens))(*tokens)
        batch = self._library.llama_batch_get_one(array, len(tokens))
        if self._library.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")


if __name__ == "__main__":
    serve(LlamaCpp)
