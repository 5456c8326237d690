"""What the machine allows: `python -m bench.roofline`.

Measures how fast memory is read and matrices are multiplied, and works out the most tokens per
second that any engine could reach with a model. A decode step reads all weights once and the keys
and values of every stream; it also has to multiply. Whatever takes longer is the bound; nothing
else is counted, so that no engine can quite reach it, but one that has fewer bytes to read: ours
has bfloat16 weights in 12 bits.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from bench.cases import NEW_TOKENS, PROMPT_TOKENS, Case, Measures, cases_of
from bench.models import model_folder
from bench.report import has_bfloat16, machine, print_machine, print_table, write_json

#: Bytes of one weight; int4 with one float16 scale for each group of 32.
WEIGHT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0, "int4": 0.5 + 2 / 32}
#: Bytes of one cached key or value: two beside quantized weights, the least that is common.
CACHE_BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 2.0, "int4": 2.0}

#: The means of `bench.server`'s load: a prompt with the template of qwen05, and an answer.
SERVED_PROMPT_TOKENS, SERVED_NEW_TOKENS = 320, 48

READ_BYTES, MATRIX_SIZE = 1 << 29, 2048


@dataclass(frozen=True, slots=True)
class Machine:
    """How fast this machine is."""

    read_bytes_s: float
    #: Operations per second of a large matrix product, by the type of its inputs.
    matmul_flop_s: Mapping[str, float]

    def fastest_matmul(self, precision: str) -> float:
        """The best rate for weights of this type; any may be widened before they are multiplied."""
        wider = {"float32": 1, "bfloat16": 2, "int8": 3, "int4": 3}[precision]
        types = ("float32", "bfloat16", "int8")[:wider]
        return max(self.matmul_flop_s.get(name, 0.0) for name in types)


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What of a model costs time, counted in numbers rather than bytes."""

    #: Weights that a decode step reads, the output layer's included.
    num_weights: int
    #: Those that prefill needs for one row only: of the output layer, and of the last block all but
    #: the projections to keys and values.
    num_last_row_weights: int
    num_layers: int
    #: Keys and values that one token leaves behind, over all layers.
    cached_per_token: int
    #: Query heads times head size.
    attention_width: int

    def attention_flop(self, num_tokens: int, num_layers: int) -> float:
        """Operations for one row that attends to so many tokens: scores, then the weighted sum."""
        return 4.0 * num_layers * self.attention_width * num_tokens


def model_size(folder: Path) -> ModelSize:
    """Count a decoder's weights in its files, without reading them."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    counts: dict[str, int] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                counts[name] = math.prod(tensors.get_slice(name).get_shape())
    head = sum(count for name, count in counts.items() if name.startswith("lm_head."))
    embedding = sum(count for name, count in counts.items() if "embed_tokens" in name)
    # an untied embedding is only looked up; a tied one is the output layer
    num_weights = sum(counts.values()) - (embedding if head else 0)
    heads = config["num_attention_heads"]
    head_size = config.get("head_dim") or config["hidden_size"] // heads
    kv_heads = config.get("num_key_value_heads") or heads
    layers = config["num_hidden_layers"]
    last = f"model.layers.{layers - 1}."
    late = sum(
        count
        for name, count in counts.items()
        if name.startswith(last) and "k_proj" not in name and "v_proj" not in name
    )
    last_row = (head or embedding) + late
    return ModelSize(
        num_weights, last_row, layers, 2 * layers * kv_heads * head_size, heads * head_size
    )


def decode_bound(
    size: ModelSize, speed: Machine, precision: str, num_streams: int, context: int
) -> float:
    """Tokens per second of all streams together that a step can at most bring."""
    cache = num_streams * context * size.cached_per_token * CACHE_BYTES[precision]
    read_s = (size.num_weights * WEIGHT_BYTES[precision] + cache) / speed.read_bytes_s
    flop = num_streams * (2.0 * size.num_weights + size.attention_flop(context, size.num_layers))
    return num_streams / max(read_s, flop / speed.fastest_matmul(precision))


def prefill_bound(size: ModelSize, speed: Machine, precision: str, num_tokens: int) -> float:
    """Prompt tokens per second that one prompt can at most be read with."""
    read_s = size.num_weights * WEIGHT_BYTES[precision] / speed.read_bytes_s
    flop = prefill_flop(size, num_tokens)
    return num_tokens / max(read_s, flop / speed.fastest_matmul(precision))


def prefill_flop(size: ModelSize, num_tokens: int) -> float:
    """Operations for a prompt, until its first new token."""
    rows = 2.0 * (size.num_weights - size.num_last_row_weights) * num_tokens
    # causal: on average a token attends to half of the prompt
    attention = size.attention_flop(num_tokens, size.num_layers - 1) * num_tokens / 2
    last_row = 2.0 * size.num_last_row_weights + size.attention_flop(num_tokens, 1)
    return rows + attention + last_row


def served_bound(
    size: ModelSize, speed: Machine, precision: str, prompt_tokens: int, new_tokens: int
) -> float:
    """New tokens per second that answers to prompts of that length can at most come with.

    However many there are at once: what is read is not counted, and they share nothing.
    """
    context = prompt_tokens + new_tokens // 2
    # the first new token is the prompt's
    per_token = 2.0 * size.num_weights + size.attention_flop(context, size.num_layers)
    flop = prefill_flop(size, prompt_tokens) + (new_tokens - 1) * per_token
    return new_tokens / (flop / speed.fastest_matmul(precision))


def bound(size: ModelSize, speed: Machine, precision: str, case: Case) -> Measures:
    """The bound of a benchmark's case, under the name of the figure that it bounds."""
    if case.is_prefill:
        return {"prefill_tok_s": prefill_bound(size, speed, precision, case.prompt_tokens)}
    context = case.prompt_tokens + case.new_tokens // 2
    return {"decode_tok_s": decode_bound(size, speed, precision, case.num_streams, context)}


def median_s(run: Callable[[], object], repeats: int = 5) -> float:
    """The median time of a call, after one that does not count."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@torch.inference_mode()
def measure_read() -> float:
    """Bytes per second of summing an array that fits into no cache."""
    array = torch.ones(READ_BYTES // 4)
    return READ_BYTES / median_s(array.sum)


@torch.inference_mode()
def measure_matmul() -> dict[str, float]:
    """Operations per second of a square matrix product, by type.

    Bfloat16 is left out where the processor has none: such a product takes PyTorch a minute there.
    """
    one = torch.randn(MATRIX_SIZE, MATRIX_SIZE)
    half = one.bfloat16()
    products: dict[str, Callable[[], object]] = {"float32": lambda: one @ one}
    if has_bfloat16():
        products["bfloat16"] = lambda: half @ half
    if (product := _int8_product()) is not None:
        products["int8"] = product
    return {name: 2 * MATRIX_SIZE**3 / median_s(run) for name, run in products.items()}


def _int8_product() -> Callable[[], object] | None:
    """Unsigned by signed bytes through oneDNN, if this torch has its private operator."""
    rows = torch.randint(0, 255, (MATRIX_SIZE, MATRIX_SIZE), dtype=torch.uint8)
    weight = torch.randint(-127, 127, (MATRIX_SIZE, MATRIX_SIZE), dtype=torch.int8)
    scales, zeros = torch.ones(MATRIX_SIZE), torch.zeros(MATRIX_SIZE, dtype=torch.int64)
    try:
        packed = torch.ops.onednn.qlinear_prepack(weight, None)

        def product() -> object:
            return torch.ops.onednn.qlinear_pointwise(
                rows, 1.0, 128, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
            )

        product()
    except (AttributeError, RuntimeError, NotImplementedError):
        return None
    return product


def measure_machine() -> Machine:
    return Machine(measure_read(), measure_matmul())


def table(
    size: ModelSize, speed: Machine, cases: Sequence[Case], measured: Mapping[str, float]
) -> list[list[str]]:
    """One row per case: its bound for each type of weights, what was measured, and the share.

    `measured` holds tokens per second by `PRECISION CASE`.
    """
    rows = []
    for case in cases:
        cells = [case.name]
        for precision in WEIGHT_BYTES:
            (limit,) = bound(size, speed, precision, case).values()
            ours = measured.get(f"{precision} {case.name}")
            share = "" if ours is None else f" ({ours:.0f}: {100 * ours / limit:.0f} %)"
            cells.append(f"{limit:.0f}{share}")
        rows.append(cells)
    served = SERVED_PROMPT_TOKENS, SERVED_NEW_TOKENS
    limits = [served_bound(size, speed, precision, *served) for precision in WEIGHT_BYTES]
    return [*rows, ["served", *(f"{limit:.0f}" for limit in limits)]]


def read_measured(path: Path, contender: str) -> dict[str, float]:
    """The medians of one contender out of a file of `bench.engine` or `bench.peers`."""
    content = json.loads(path.read_text(encoding="utf-8"))
    measured = {}
    for row in content["summary"]:
        cells = row["cells"]
        values = cells.get("decode_tok_s") or cells.get("prefill_tok_s")
        if row["contender"] == contender and values:
            # bench.peers names the precision in its cases, bench.engine has one for all of them
            named = row["case"].split()[0] in WEIGHT_BYTES
            key = row["case"] if named else f"{content['machine']['dtype']} {row['case']}"
            measured[key] = statistics.median(values)
    return measured


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.roofline", description=__doc__)
    parser.add_argument("--model", default="qwen05", help="a name of bench.models, or a folder")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prefill", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--measured", type=Path, help="a JSON file of bench.engine or bench.peers")
    parser.add_argument("--contender", default="streamwell", help="whose figures to take from it")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    return parser.parse_args()


def main() -> None:
    """Measure the machine, and print what it allows."""
    args = parse_args()
    torch.set_num_threads(args.threads)
    facts: dict[str, Any] = machine() | {"model": args.model, "threads": args.threads}
    print_machine(facts)
    size, speed = model_size(model_folder(args.model)), measure_machine()
    print(f"\nmemory is read with {speed.read_bytes_s / 1e9:.1f} GB/s; products of matrices:")
    for name, rate in speed.matmul_flop_s.items():
        print(f"  {name:9} {rate / 1e9:.0f} G operations/s")
    if not has_bfloat16():
        print("  (no bfloat16 hardware: its weights are multiplied as float32)")
    print(f"\nAt most tok/s; decode at contexts of {PROMPT_TOKENS + NEW_TOKENS // 2} tokens;")
    print(f"served: answers of {SERVED_NEW_TOKENS} tokens to prompts of {SERVED_PROMPT_TOKENS}:\n")
    measured = read_measured(args.measured, args.contender) if args.measured else {}
    rows = table(size, speed, cases_of(args.prefill, args.streams), measured)
    header = ["case", *WEIGHT_BYTES]
    print_table(header, rows)
    if args.json:
        speeds = {"read_bytes_s": speed.read_bytes_s, "matmul_flop_s": dict(speed.matmul_flop_s)}
        write_json(args.json, {"machine": facts | speeds, "header": header, "rows": rows})


if __name__ == "__main__":
    main()
