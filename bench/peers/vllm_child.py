"""vLLM behind `bench.protocol`, in its own environment: FOLDER DTYPE."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from vllm import EngineArgs, LLMEngine, SamplingParams, TokensPrompt

from bench.protocol import Trace, answer_requests


class Vllm:
    """vLLM's engine with its defaults, without the cache of prefixes: no prompts share one."""

    def __init__(self, folder: str, dtype: str) -> None:
        arguments = EngineArgs(model=folder, dtype=dtype, enable_prefix_caching=False)
        self._engine = LLMEngine.from_engine_args(arguments)

    def run(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Trace:
        sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        times: dict[str, list[float]] = {str(index): [] for index in range(len(prompts))}
        start = time.perf_counter()
        for request_id, prompt in zip(times, prompts, strict=True):
            ids = TokensPrompt(prompt_token_ids=list(prompt))
            self._engine.add_request(request_id, ids, sampling)
        while self._engine.has_unfinished_requests():
            outputs = self._engine.step()
            now = time.perf_counter() - start
            for output in outputs:
                stream = times[output.request_id]
                stream += [now] * (len(output.outputs[0].token_ids) - len(stream))
        return Trace(tuple(map(tuple, times.values())), time.perf_counter() - start)


if __name__ == "__main__":
    answer_requests(lambda: Vllm(*sys.argv[1:]))
