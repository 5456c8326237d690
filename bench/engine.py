"""Our engine next to Transformers, offline: `python -m bench.engine`.

All contenders have the same weights, dtype and number of threads, each in a process of its own.
They take turns, round after round, so that a slow minute of the machine hits all of them: what
counts are the ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bench.child import Child
from bench.contenders import CONTENDERS, Trace
from bench.models import model_folder
from bench.report import (
    Column,
    machine,
    percentile,
    print_machine,
    print_summary,
    resolve_dtype,
    summarize,
    write_json,
)

PROMPT_TOKENS, NEW_TOKENS = 128, 32
#: Prefill is measured with one long prompt, and the one token that it brings.
PREFILL_TOKENS = 512
#: Random prompts keep to ids that all of our tokenizers know.
FIRST_ID, LAST_ID = 10, 1900

COLUMNS = {
    "prefill_tok_s": Column("prefill tok/s", more_is_better=True),
    "wall_tok_s": Column("wall tok/s", more_is_better=True),
    "decode_tok_s": Column("decode tok/s", more_is_better=True),
    "ttft_ms": Column("TTFT ms", more_is_better=False),
    "itl_ms": Column("ITL ms", more_is_better=False),
}

#: One measurement of one contender.
Measures = dict[str, float]


def measure(trace: Trace, num_prompt_tokens: int, max_tokens: int) -> Measures:
    """The figures of one run.

    Raises:
        RuntimeError: a stream did not get its tokens, so that nothing can be compared.
    """
    streams = trace.token_times_s
    if any(len(stream) != max_tokens for stream in streams):
        raise RuntimeError(f"tokens per stream: {[len(stream) for stream in streams]}")
    if max_tokens == 1:
        return {"prefill_tok_s": num_prompt_tokens / trace.wall_s}
    gaps = [b - a for times in streams for a, b in itertools.pairwise(times)]
    # pure decode: from the last stream's first token to the first stream's last one
    begin, end = max(times[0] for times in streams), min(times[-1] for times in streams)
    decoded = sum(begin < moment <= end for times in streams for moment in times)
    return {
        "wall_tok_s": len(streams) * max_tokens / trace.wall_s,
        "decode_tok_s": decoded / (end - begin) if end > begin else 0.0,
        "ttft_ms": 1e3 * statistics.median(times[0] for times in streams),
        "itl_ms": 1e3 * percentile(gaps, 50),
    }


def case_name(num_streams: int) -> str:
    return f"{num_streams} streams" if num_streams else "prefill"


def run_round(
    contenders: Sequence[Child], cases: Sequence[int], round_index: int
) -> list[dict[str, Any]]:
    """Every case once for every contender; the order of the contenders turns with the round."""
    results = []
    for num_streams in cases:
        num_tokens = PROMPT_TOKENS if num_streams else PREFILL_TOKENS
        max_tokens = NEW_TOKENS if num_streams else 1
        ids = random.Random(f"{round_index} {num_streams}")
        prompts = [
            [ids.randint(FIRST_ID, LAST_ID) for _ in range(num_tokens)]
            for _ in range(num_streams or 1)
        ]
        shift = round_index % len(contenders)
        for contender in (*contenders[shift:], *contenders[:shift]):
            trace = contender.run(prompts, max_tokens)
            measures = measure(trace, num_tokens * len(prompts), max_tokens)
            case = case_name(num_streams)
            figures = "  ".join(f"{name}={value:.1f}" for name, value in measures.items())
            print(f"round {round_index + 1}  {case:10}  {contender.name:20}  {figures}", flush=True)
            results.append(
                {"round": round_index, "case": case, "contender": contender.name, **measures}
            )
    return results


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--model", default="qwen05", help="a name of bench.models, or a folder")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write everything to this file")
    return parser.parse_args()


def main() -> None:
    """Measure, and print what was measured."""
    args = parse_args()
    folder, dtype = model_folder(args.model), resolve_dtype(args.dtype)
    facts = machine() | {"model": args.model, "dtype": dtype, "threads": args.threads}
    print_machine(facts)
    cases, names = [0, *args.streams], list(CONTENDERS)
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(name, folder, dtype, args.threads)) for name in names]
        for child in children:
            child.run([list(range(FIRST_ID, FIRST_ID + PROMPT_TOKENS))] * 2, 2)  # warm up
        results = [row for i in range(args.rounds) for row in run_round(children, cases, i)]
    summary = summarize(results, COLUMNS)
    print_summary(summary, COLUMNS)
    if args.json:
        write_json(args.json, {"machine": facts, "summary": summary, "runs": results})


if __name__ == "__main__":
    main()
