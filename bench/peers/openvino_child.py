"""OpenVINO GenAI behind `bench.protocol`, in its own environment.

Arguments: FOLDER THREADS [PROPERTY=VALUE]...
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import numpy as np
import openvino
import openvino_genai

from bench.protocol import Trace, answer_requests

CACHE_GIB, MAX_BATCHED_TOKENS, MAX_SEQS = 2, 512, 64


class OpenVino:
    """The continuous batching pipeline, on the CPU."""

    def __init__(self, folder: str, num_threads: int, properties: Sequence[str]) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GIB
        scheduler.max_num_batched_tokens = MAX_BATCHED_TOKENS
        scheduler.max_num_seqs = MAX_SEQS
        scheduler.enable_prefix_caching = False
        options = dict(item.split("=", 1) for item in properties)
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            folder, scheduler, "CPU", {"INFERENCE_NUM_THREADS": num_threads, **options}
        )
        self._next_id = 0

    def run(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Trace:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = max_tokens, True, False
        times: list[list[float]] = [[] for _ in prompts]
        start = time.perf_counter()
        handles = []
        for prompt in prompts:
            ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
            handles.append(self._pipeline.add_request(self._next_id, ids, config))
            self._next_id += 1
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            now = time.perf_counter() - start
            for stream, handle in zip(times, handles, strict=True):
                while handle.can_read():
                    for output in handle.read().values():
                        stream += [now] * len(output.generated_ids)
        return Trace(tuple(map(tuple, times)), time.perf_counter() - start)


if __name__ == "__main__":
    answer_requests(lambda: OpenVino(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
