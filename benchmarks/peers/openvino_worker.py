"""OpenVINO GenAI: its continuous-batching pipeline on a GGUF file, with its own defaults."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.protocol import Missing, Run, serve


class OpenVino:
    """A GGUF file in `LLMPipeline`, prefix caching off unless the options ask for it.

    Times are those that the pipeline itself measures, so nothing of Python's is among them.
    """

    def __init__(self, model: Path, threads: int, options: dict[str, Any]) -> None:
        try:
            import numpy
            import openvino
            import openvino_genai
        except ImportError as error:
            raise Missing(f"openvino-genai cannot be imported: {error}") from error
        self._numpy, self._tensor, self._genai = numpy, openvino.Tensor, openvino_genai
        scheduling = openvino_genai.SchedulerConfig()
        scheduling.cache_size = 2
        scheduling.enable_prefix_caching = bool(options.get("prefix_caching", False))
        self._pipeline = openvino_genai.LLMPipeline(
            str(model), "CPU", scheduler_config=scheduling, INFERENCE_NUM_THREADS=threads
        )
        self.about = {"version": openvino_genai.__version__}

    def choose(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> dict[str, Any]:
        self.run(prompts, new_tokens)
        return {}

    def run(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Run:
        config = self._genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = new_tokens
        config.ignore_eos, config.do_sample, config.apply_chat_template = True, False, False
        ids = self._numpy.array(prompts, dtype=self._numpy.int64)
        inputs = self._genai.TokenizedInputs(
            self._tensor(ids), self._tensor(self._numpy.ones_like(ids))
        )
        result = self._pipeline.generate(inputs, config)
        raw = result.perf_metrics.raw_metrics
        ttft_s = raw.m_times_to_first_token[0] / 1e6
        times = list(raw.m_new_token_times)  # milliseconds
        steps = [
            (ttft_s + (time - times[0]) / 1e3, count)
            for time, count in zip(times, raw.m_batch_sizes, strict=True)
        ]
        return Run([list(map(int, answer)) for answer in result.tokens], steps)

    def logits(self, tokens: Sequence[int], chunk: int) -> Any:
        raise NotImplementedError("OpenVINO GenAI gives no logits")


if __name__ == "__main__":
    serve(OpenVino)
