"""Encoder-decoders: our engine next to Transformers and CTranslate2: `python -m bench.seq2seq`.

The shape is flan-T5-base's, with random weights. Everybody gets the same inputs of 64 tokens at the
same time, chooses greedily and never ends early, each in a process of its own. They take turns,
round after round, so that a slow minute of the machine hits all of them: what counts are the
ratios. CTranslate2 computes in float32, its fastest type without rounding weights; the others in
`--dtype`.

Then, how often we choose the token that Transformers' `generate` chooses in bfloat16, on the tiny
models of the golden tests. Their weights are random, so their tokens are near to each other; a
trained model's are not.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from bench.cases import COLUMNS, Case, Runner, run_round
from bench.child import ROOT, Child
from bench.command import command_line
from bench.models import MODELS_DIR, building
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
from streamwell.core.types import SamplingParams
from streamwell.engine.sequence import Chunk, Sequence

INPUT_TOKENS, NEW_TOKENS = 64, 65
WARM_UP = Case(num_streams=2, prompt_tokens=INPUT_TOKENS, new_tokens=2)

_T5 = {"vocab_size": 32128, "feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0}
SHAPES = {
    "t5tiny": _T5 | {"d_model": 64, "d_ff": 128, "d_kv": 16, "num_layers": 2, "num_heads": 4},
    "t5base": _T5 | {"d_model": 768, "d_ff": 2048, "d_kv": 64, "num_layers": 12, "num_heads": 12},
}


def t5_folder(name: str) -> Path:
    """A model of `SHAPES`, built if need be, or the caller's folder."""
    if name not in SHAPES:
        return Path(name)
    folder = MODELS_DIR / name
    if not folder.is_dir():
        with building(folder) as scratch:
            _build(SHAPES[name], scratch)
    return folder


def _build(shape: dict[str, Any], folder: Path) -> None:
    """Random weights, and a tokenizer whose words are `w0`, `w1`, …."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    T5ForConditionalGeneration(T5Config(**shape)).to(torch.bfloat16).save_pretrained(folder)
    vocab = {"<pad>": 0, "</s>": 1, "<unk>": 2}
    vocab |= {f"w{i}": i for i in range(len(vocab), shape["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)


def measure_speed(folder: Path, dtype: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of all contenders, in turn; one that cannot start is reported and left out."""
    dtypes = {OURS: dtype, "generate": dtype, "CTranslate2": "float32"}
    with contextlib.ExitStack() as stack:
        runners: list[Runner] = []
        for name, kind in dtypes.items():
            module = (sys.executable, "-m", "bench.seq2seq_child")
            command = (*module, name, str(folder), kind, str(args.threads))
            child = stack.enter_context(Child(f"{name} {kind}" if name != OURS else name, command))
            try:
                child.measure(WARM_UP, "warm up")
            except RuntimeError as error:
                print(f"{name} is left out: {error}", flush=True)
            else:
                runners.append(child)
        cases = [Case(n, prompt_tokens=INPUT_TOKENS, new_tokens=NEW_TOKENS) for n in args.streams]
        return [row for i in range(args.rounds) for row in run_round(runners, cases, i)]


#: Who is compared with whom: both in bfloat16, or with what the same weights say in float32.
PAIRS = {
    "ours, generate": ("ours", "bfloat16"),
    "ours, float32": ("ours", "float32"),
    "generate, float32": ("bfloat16", "float32"),
}


def measure_agreement() -> dict[str, dict[str, float]]:
    """For each tiny model, the shares of tokens on which each of `PAIRS` agrees."""
    sys.path.insert(0, str(ROOT / "tests" / "golden"))
    from tiny_seq2seq import CONFIGS, build

    shares = {}
    for name in CONFIGS:
        with tempfile.TemporaryDirectory() as scratch:
            chosen = _choices(build(name, Path(scratch)))
        shares[name] = {
            pair: float((chosen[one] == chosen[other]).float().mean())
            for pair, (one, other) in PAIRS.items()
        }
    return shares


@torch.inference_mode()
def _choices(folder: Path) -> dict[str, torch.Tensor]:
    """The next token that each chooses after every token of `generate`'s answers in bfloat16."""
    from engine_rig import NATIVE_BLOCK_SIZE, load_model
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    inputs = torch.randint(3, 299, (16, 24), generator=torch.Generator().manual_seed(0))
    answers = model.generate(
        inputs,
        attention_mask=torch.ones_like(inputs),
        do_sample=False,
        max_new_tokens=24,
        repetition_penalty=1.8,  # else they say little but one token
    )
    loaded = load_model(folder, dtype="bfloat16", block_size=NATIVE_BLOCK_SIZE)
    block_size, num_rows = loaded.info.block_size, answers.shape[1]
    ours = []
    for input_ids, ids in zip(inputs.tolist(), answers.tolist(), strict=True):
        seq = Sequence("", ids, SamplingParams(max_tokens=1), encoder_ids=tuple(input_ids))
        num_blocks = -(-num_rows // block_size)
        seq.block_ids = list(range(1, num_blocks + 1))
        seq.cross_block_ids = list(range(num_blocks + 1, 2 * num_blocks + 1))
        logits = loaded.runner.model.forward([Chunk(seq, 0, num_rows)], list(range(num_rows)))
        ours.append(logits.argmax(-1))
    given = {"input_ids": inputs, "decoder_input_ids": answers}
    return {
        "ours": torch.stack(ours),
        "bfloat16": model(**given).logits.argmax(-1),
        "float32": model.float()(**given).logits.argmax(-1),
    }


def main() -> None:
    """Measure, and print what was measured."""
    parser = command_line("bench.seq2seq", __doc__, rounds=3)
    parser.set_defaults(model="t5base")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    dtype = resolve_dtype(args.dtype)
    folder = t5_folder(args.model)
    facts = machine() | {"model": args.model, "dtype": dtype, "threads": args.threads}
    print_machine(facts)
    results = measure_speed(folder, dtype, args)
    summary = summarize(results, COLUMNS)
    print_summary(summary, COLUMNS)
    agreement = measure_agreement()
    print("Next tokens that are the same, in bfloat16:\n")
    rows = [[n, *(f"{100 * v:.1f} %" for v in shares.values())] for n, shares in agreement.items()]
    print_table(["tiny model", *PAIRS], rows)
    if args.json:
        content: dict[str, Any] = {"machine": facts, "summary": summary, "runs": results}
        write_json(args.json, content | {"agreement": agreement})


if __name__ == "__main__":
    main()
