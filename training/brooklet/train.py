"""The trainer: teaches a small Llama the corpus from scratch, on a CPU.

Every batch is generated from the seed and the step number, so a run that is stopped and
started again sees the same data as one that never stopped.
"""

from __future__ import annotations

import argparse
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch.nn.functional import cross_entropy
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from training.brooklet.corpus import conversation
from training.brooklet.tokenizer import (
    CONTEXT_LENGTH,
    build_tokenizer,
    encode_conversation,
    load_tokenizer,
    save_tokenizer,
)

# Rows and their length, taken in turn: most replies are short, and only long rows hold long counts.
SHAPES = ((4, 512), (4, 512), (4, 512), (2, 1024))
PEAK_RATE = 2e-3
WARM_UP = 100
COOL_DOWN = 800
THREADS = 1  # sums in another order give other weights
ARTEFACTS = Path(__file__).resolve().parents[2] / "src/streamwell/models/brooklet"


@dataclass
class Batch:
    """Rows of packed conversations."""

    token_ids: torch.Tensor  # (rows, length)
    targets: torch.Tensor  # (rows, length), -100 where nothing is to be learned
    positions: torch.Tensor  # (rows, length), from 0 in each conversation
    attends: torch.Tensor  # (rows, 1, length, length), True where a token may look


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Create the untrained model."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_LENGTH,
        tie_word_embeddings=True,
        initializer_range=0.04,  # the usual 0.02 suits wider models and starts this one slowly
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def pack_row(
    tokenizer: PreTrainedTokenizerFast, rng: Random, length: int
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Fill one row with conversations, cutting the last one where the row ends."""
    token_ids: list[int] = []
    targets: list[int] = []
    positions: list[int] = []
    owners: list[int] = []  # which conversation each token belongs to
    owner = 0
    while len(token_ids) <= length:
        ids, is_target = encode_conversation(tokenizer, conversation(rng))
        token_ids += ids
        targets += [token if wanted else -100 for token, wanted in zip(ids, is_target, strict=True)]
        positions += range(len(ids))
        owners += [owner] * len(ids)
        owner += 1
    # Each position predicts the token after it, so the targets start one later.
    return token_ids[:length], targets[1 : length + 1], positions[:length], owners[:length]


def make_batch(tokenizer: PreTrainedTokenizerFast, seed: int, step: int) -> Batch:
    """Generate the batch of one step."""
    rng = Random(f"batch-{seed}-{step}")
    rows, length = SHAPES[step % len(SHAPES)]
    columns = zip(*(pack_row(tokenizer, rng, length) for _ in range(rows)), strict=True)
    token_ids, targets, positions, owners = (torch.tensor(column) for column in columns)
    same_owner = owners[:, None, :, None] == owners[:, None, None, :]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    return Batch(token_ids, targets, positions, same_owner & causal)


def batch_loss(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Mean loss over the assistant's tokens; the others skip the output layer."""
    hidden = model.model(
        input_ids=batch.token_ids, position_ids=batch.positions, attention_mask=batch.attends
    ).last_hidden_state
    wanted = batch.targets != -100
    return cross_entropy(model.lm_head(hidden[wanted]), batch.targets[wanted])


def learning_rate(step: int, steps: int) -> float:
    """Rise to the peak, stay there, and fall in a straight line over the last steps.

    Unlike a cosine, the way to the last fall does not depend on how long the run will be.
    """
    rise = (step + 1) / WARM_UP
    fall = (steps - step) / min(COOL_DOWN, steps)
    return PEAK_RATE * min(1.0, rise, fall)


def export(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, target: Path) -> None:
    """Write the finished folder file by file, so that a reader never meets half a file."""
    target.mkdir(parents=True, exist_ok=True)
    staging = target.with_name(target.name + ".partial")
    shutil.rmtree(staging, ignore_errors=True)
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=0.3,
        top_p=0.95,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(staging)
    save_tokenizer(tokenizer, staging)
    for file in staging.iterdir():
        file.chmod(0o644)
        file.replace(target / file.name)
    staging.rmdir()


def make_optimizer(model: LlamaForCausalLM) -> torch.optim.AdamW:
    """AdamW that leaves the norms' weights alone."""
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98), fused=True)


class Run:
    """One training run, with its checkpoint."""

    def __init__(self, work: Path, seed: int) -> None:
        work.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(seed)
        self.seed = seed
        self.checkpoint = work / "checkpoint.pt"
        if (work / "tokenizer").exists():
            self.tokenizer = load_tokenizer(work / "tokenizer")
        else:
            self.tokenizer = build_tokenizer(seed)
            save_tokenizer(self.tokenizer, work / "tokenizer")
        self.model = make_model(self.tokenizer)
        self.optimizer = make_optimizer(self.model)
        self.step = 0
        if self.checkpoint.exists():
            state = torch.load(self.checkpoint)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]

    def save(self) -> None:
        """Save everything needed to go on."""
        partial = self.checkpoint.with_suffix(".partial")
        state = {"model": self.model, "optimizer": self.optimizer}
        state = {name: part.state_dict() for name, part in state.items()}
        torch.save(state | {"step": self.step}, partial)
        partial.replace(self.checkpoint)

    def advance(self, steps: int) -> float:
        """Take one step of a run of so many, and return its loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, steps)
        loss = batch_loss(self.model, make_batch(self.tokenizer, self.seed, self.step))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return loss.item()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--work", type=Path, default=Path("build/brooklet"), help="checkpoints")
    parser.add_argument("--output", type=Path, default=ARTEFACTS, help="the finished folder")
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--save-every", type=int, default=250)
    return parser.parse_args()


def main() -> None:
    """Train to the end, exporting the model at every checkpoint."""
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    run = Run(arguments.work, arguments.seed)
    print(f"{run.model.num_parameters():,} parameters, from step {run.step}", flush=True)
    started = time.monotonic()
    mean_loss = 0.0
    while run.step < arguments.steps:
        loss = run.advance(arguments.steps)
        mean_loss = loss if run.step == 1 or not mean_loss else 0.95 * mean_loss + 0.05 * loss
        if run.step % 25 == 0:
            minutes = (time.monotonic() - started) / 60
            print(f"step {run.step} loss {mean_loss:.3f} minutes {minutes:.1f}", flush=True)
        if run.step % arguments.save_every == 0:
            run.save()
            export(run.model, run.tokenizer, arguments.output)
    export(run.model, run.tokenizer, arguments.output)


if __name__ == "__main__":
    main()
