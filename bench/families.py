"""Our decoders next to Transformers' code, family by family: `python -m bench.families`.

Both run in our engine, through the same scheduler and the same cache: what differs is the model.
Every family has a shape of 0.1 to 1.5 B parameters with random weights. After the speeds, how often
a path chooses the token that Transformers' `generate` chooses in bfloat16, on the tiny models of
the golden tests, whose weights are random too: their tokens are near to each other, a trained
model's are not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from bench.cases import COLUMNS, WARM_UP, Runner, cases_of, run_round
from bench.child import ROOT, Child, command_of
from bench.command import command_line
from bench.contenders import PLAIN_PATH
from bench.models import model_folder
from bench.report import (
    OURS,
    machine,
    print_machine,
    print_summary,
    print_table,
    resolve_dtype,
    summarize,
    write_json,
)
from streamwell.core.errors import LoadError
from streamwell.core.types import SamplingParams
from streamwell.engine.sequence import Chunk, Sequence

#: A shape of `bench.shapes` for each family.
SHAPES = {
    "Llama": "smol135",
    "Qwen2": "qwen05",
    "Qwen3": "qwen3-470",
    "Phi-3": "phi300",
    "GPT-2": "gpt2",
    "GPT-NeoX": "pythia410",
    "Gemma 2": "gemma2-300",
    "Gemma 3": "gemma270",
    "OLMo 2": "olmo400",
    "ERNIE 4.5": "ernie300",
    "EXAONE 4": "exaone400",
    "GLM-4": "glm400",
    "Command R7B": "cohere400",
    "Granite": "granite350",
    "StarCoder2": "starcoder400",
    "Qwen2-MoE": "qwenmoe400",
    "Qwen3-MoE": "qwen3moe1500",
}
#: What is measured: decoding only.
MEASURES = {key: COLUMNS[key] for key in ("decode_tok_s", "itl_ms")}
#: Greedy continuations that `generate` is asked for, and how long they are.
NUM_PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 16, 24, 24


def measure_speed(
    family: str, model: str, args: argparse.Namespace, dtype: str
) -> list[dict[str, Any]]:
    """Rows of one family: both paths take turns, each in a process of its own."""
    folder = model_folder(model)
    ours, plain = (command_of(name, folder, dtype, args.threads) for name in (OURS, PLAIN_PATH))
    with Child(OURS, ours) as fast, Child(PLAIN_PATH, plain) as slow:
        runners: list[Runner] = [fast, slow]
        for runner in runners:
            runner.measure(WARM_UP, "warm up")
        cases = cases_of([], args.streams)
        rows = [row for index in range(args.rounds) for row in run_round(runners, cases, index)]
    return [row | {"case": f"{family}, {row['case']}"} for row in rows]


def measure_agreement() -> list[dict[str, Any]]:
    """One row for each tiny model: the share of tokens on which a path and `generate` agree."""
    sys.path.insert(0, str(ROOT / "tests" / "golden"))  # its models are the ones that are tested
    from tiny_models import build
    from transformers.utils import logging
    from zoo import ZOO

    logging.disable_progress_bar()
    rows = []
    for entry in ZOO:
        for name, paths in entry.models.items():
            with tempfile.TemporaryDirectory() as scratch:
                folder = build(name, Path(scratch))
                sequences = _continue(folder)
                shares = {path: _agreement(folder, path, sequences) for path in paths}
            rows.append({"family": entry.title, "model": name} | shares)
    return rows


@torch.inference_mode()
def _continue(folder: Path) -> torch.Tensor:
    """`[NUM_PROMPTS, PROMPT_TOKENS + NEW_TOKENS]` ids: random prompts, and `generate`'s answers."""
    from engine_rig import load_reference

    model = load_reference(folder, torch.bfloat16)
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(3, 300, (NUM_PROMPTS, PROMPT_TOKENS), generator=generator)
    ids: torch.Tensor = model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        do_sample=False,
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
    )
    return ids


@torch.inference_mode()
def _agreement(folder: Path, path: str, sequences: torch.Tensor) -> float | None:
    """How often the next token is the same after the same tokens; `None` if it cannot run here."""
    from engine_rig import load_model

    try:
        loaded = load_model(folder, path, dtype="bfloat16")
    except LoadError as error:
        print(f"{path} is left out: {error}")
        return None
    model, end = loaded.runner.model, PROMPT_TOKENS + NEW_TOKENS
    same = 0
    for ids in sequences:
        sequence = Sequence("", ids.tolist(), SamplingParams(max_tokens=1))
        sequence.block_ids = list(range(1, end // loaded.info.block_size + 2))
        logits = model.forward(
            [Chunk(sequence, 0, end - 1)], list(range(PROMPT_TOKENS - 1, end - 1))
        )
        logits[:, 2] = float("-inf")  # `generate` was not allowed to end
        same += int((logits.argmax(-1) == ids[PROMPT_TOKENS:]).sum())
    return same / (len(sequences) * NEW_TOKENS)


def _print_agreement(rows: list[dict[str, Any]]) -> None:
    paths = ("native", "torch", "transformers")
    cells = [
        [row["model"], *("" if row.get(p) is None else f"{100 * row[p]:.1f} %" for p in paths)]
        for row in rows
    ]
    print("Tokens on which a path agrees with `generate` in bfloat16:\n")
    print_table(["tiny model", *paths], cells)


def main() -> None:
    """Measure, and print what was measured."""
    parser = command_line("bench.families", __doc__, rounds=3)
    parser.set_defaults(model=None)  # measured in place of the families' shapes
    parser.add_argument("--families", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    dtype = resolve_dtype(args.dtype)
    facts = machine() | {"dtype": dtype, "threads": args.threads}
    print_machine(facts)
    models = {args.model: args.model} if args.model else {n: SHAPES[n] for n in args.families}
    results = [row for pair in models.items() for row in measure_speed(*pair, args, dtype)]
    summary = summarize(results, MEASURES)
    print_summary(summary, MEASURES)
    agreement = measure_agreement()
    _print_agreement(agreement)
    if args.json:
        content = {"machine": facts, "summary": summary, "runs": results, "agreement": agreement}
        write_json(args.json, content)


if __name__ == "__main__":
    main()
