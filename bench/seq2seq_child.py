"""A contender of `bench.seq2seq` in a process of its own: NAME FOLDER DTYPE THREADS."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from bench import contenders
from bench.contenders import Streamwell
from bench.protocol import Contender, Trace, answer_requests


class Generate(contenders.Generate):
    """Transformers' `generate` over one static batch."""

    def __init__(self, folder: Path, dtype: str, num_threads: int) -> None:
        from transformers import AutoModelForSeq2SeqLM

        torch.set_num_threads(num_threads)
        self._model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=dtype).eval()
        self._model.generation_config.eos_token_id = None


class CTranslate2:
    """CTranslate2's `Translator` over one batch, with a beam of one."""

    def __init__(self, folder: Path, dtype: str, num_threads: int) -> None:
        import ctranslate2
        from ctranslate2.converters import TransformersConverter

        with tempfile.TemporaryDirectory(prefix="streamwell-bench-") as scratch:
            self._translator = ctranslate2.Translator(
                TransformersConverter(str(folder)).convert(f"{scratch}/model"),
                device="cpu",
                compute_type=dtype,
                intra_threads=num_threads,
                inter_threads=1,
            )

    def run(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Trace:
        times: list[list[float]] = [[] for _ in prompts]
        start = time.perf_counter()

        def note(step: object) -> bool:
            times[step.batch_id].append(time.perf_counter() - start)  # type: ignore[attr-defined]
            return False

        self._translator.translate_batch(
            [[f"w{token_id}" for token_id in prompt] for prompt in prompts],
            beam_size=1,
            min_decoding_length=max_tokens,
            max_decoding_length=max_tokens,
            callback=note,
        )
        wall_s = time.perf_counter() - start
        return Trace(tuple(map(tuple, times)), wall_s)


CONTENDERS: dict[str, Callable[[Path, str, int], Contender]] = {
    "streamwell": Streamwell,
    "generate": Generate,
    "CTranslate2": CTranslate2,
}


def main() -> None:
    name, folder, dtype, num_threads = sys.argv[1:]
    answer_requests(lambda: CONTENDERS[name](Path(folder), dtype, int(num_threads)))


if __name__ == "__main__":
    main()
