"""What an adapter costs: `python -m bench.adapters`.

Our engine without an adapter, with one of rank 16 on all layers (`adapted`), and with the same in
PyTorch (`adapted, torch`), which computes where the native helper does not fit. The adapter is
random, and made by PEFT once for each model. They take turns, each in a process of its own.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

from bench.cases import COLUMNS, WARM_UP, Runner, cases_of, run_round
from bench.child import Child, command_of
from bench.command import command_line, publish
from bench.contenders import ADAPTED, ADAPTED_TORCH
from bench.models import adapter_folder, building, model_folder
from bench.report import OURS, machine, print_machine, resolve_dtype
from bench.settings import QUANTIZED

RANK = 16


def build_adapter(model: Path) -> None:
    """Write the adapter of a model, if it is not there."""
    folder = adapter_folder(model)
    if folder.is_dir():
        return
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with building(folder) as scratch:
        torch.manual_seed(0)
        config = LoraConfig(
            task_type="CAUSAL_LM", r=RANK, target_modules="all-linear", init_lora_weights=False
        )
        plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
        get_peft_model(plain, config).save_pretrained(str(scratch))


def main() -> None:
    """Measure, and print what was measured."""
    parser = command_line("bench.adapters", __doc__, rounds=3)
    parser.add_argument("--quantization", default="none", choices=("none", *QUANTIZED))
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prefill", type=int, nargs="*", default=[512])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    is_rounded = args.quantization != "none"
    precision = args.quantization if is_rounded else resolve_dtype(args.dtype)
    facts = machine() | {"precision": precision, "threads": args.threads}
    print_machine(facts)
    folder = model_folder(args.model)
    build_adapter(folder)
    cases = cases_of(args.prefill, args.streams)
    with contextlib.ExitStack() as stack:
        runners: list[Runner] = []
        for name in (OURS, ADAPTED, ADAPTED_TORCH):
            child = Child(name, command_of(name, folder, precision, args.threads))
            runners.append(stack.enter_context(child))
            child.measure(WARM_UP, "warm up")
        results = [row for index in range(args.rounds) for row in run_round(runners, cases, index)]
    publish(results, COLUMNS, facts, args.json)


if __name__ == "__main__":
    main()
