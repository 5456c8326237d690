"""The trainer: teaches a small Llama the corpus from scratch, on a CPU.

Every batch is generated from the seed and the step number, so a run that is stopped and
started again sees the same data as one that never stopped.
"""

from __future__ import annotations

import argparse
import copy
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from training.brooklet import packed_attention
from training.brooklet.batches import IGNORED, Batch, Steps
from training.brooklet.tokenizer import (
    CONTEXT_LENGTH,
    build_tokenizer,
    load_tokenizer,
    save_tokenizer,
)
from training.loss_curve import LossCurve

PEAK_RATE = 3e-3
WARM_UP = 100
COOL_DOWN = 0.35  # of all steps
THREADS = 2  # with more or fewer, sums come in another order and give other weights
ARTEFACTS = Path(__file__).resolve().parents[2] / "src/streamwell/models/brooklet"


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Make the model with random weights."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=640,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_LENGTH,
        tie_word_embeddings=True,
        initializer_range=0.03,  # the usual 0.02 suits wider models and starts this one slowly
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.set_attn_implementation(packed_attention.NAME)
    return model


def loss_sum(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Summed loss over the tokens to be learned; the others skip the output layer."""
    hidden = model.model(
        input_ids=batch.token_ids,
        position_ids=batch.positions,
        owners=batch.owners,
        use_cache=False,
    ).last_hidden_state
    wanted = batch.targets != IGNORED
    logits = model.lm_head(hidden[wanted])
    return cross_entropy(logits.float(), batch.targets[wanted], reduction="sum")


def learning_rate(step: int, steps: int) -> float:
    """Give the share of the peak rate: rise, stay, and fall in a straight line at the end."""
    rise = (step + 1) / WARM_UP
    fall = (steps - step) / (COOL_DOWN * steps)
    return min(1.0, rise, fall)


def export(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, target: Path) -> None:
    """Write the finished folder file by file, so that a reader never meets half a file.

    The weights are stored in half precision; the configuration says float32, in which they are
    computed with, so that every machine gives the same text.
    """
    target.mkdir(parents=True, exist_ok=True)
    staging = target.with_name(target.name + ".partial")
    shutil.rmtree(staging, ignore_errors=True)
    stored = LlamaForCausalLM(model.config).half()
    stored.load_state_dict(model.state_dict())
    stored.generation_config = GenerationConfig(
        do_sample=True,
        temperature=0.3,
        top_p=0.95,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    stored.save_pretrained(staging)
    stored.config.dtype = "float32"  # only now: saving the weights writes their own
    stored.config.save_pretrained(staging)
    save_tokenizer(tokenizer, staging)
    for file in staging.iterdir():
        file.chmod(0o644)
        file.replace(target / file.name)
    staging.rmdir()


class Optimizer:
    """Muon for the matrices of the layers, AdamW for the embeddings and the norms' weights."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        layers = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
        in_layers = {id(weight) for weight in layers}
        rest = [weight for weight in model.parameters() if id(weight) not in in_layers]
        muon = torch.optim.Muon(
            layers, lr=PEAK_RATE, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"
        )
        adamw = torch.optim.AdamW(rest, lr=PEAK_RATE, weight_decay=0.0, betas=(0.9, 0.98))
        self.parts: list[torch.optim.Optimizer] = [muon, adamw]

    def step(self, rate: float) -> None:
        """Update the weights at this share of the peak rate, and forget the gradients."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate * PEAK_RATE
            part.step()
            part.zero_grad()


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
        self.worker = copy.deepcopy(self.model).bfloat16()  # computes; the other is what learns
        for layer in self.worker.model.layers:  # all alike, so compiled once for each shape
            layer.compile(dynamic=False)
        self.optimizer = Optimizer(self.model)
        self.step = 0
        if self.checkpoint.exists():
            state = torch.load(self.checkpoint)
            self.model.load_state_dict(state["model"])
            for part, saved in zip(self.optimizer.parts, state["optimizers"], strict=True):
                part.load_state_dict(saved)
            self.step = state["step"]

    def save(self) -> None:
        """Save everything needed to go on."""
        partial = self.checkpoint.with_suffix(".partial")
        state = {
            "model": self.model.state_dict(),
            "optimizers": [part.state_dict() for part in self.optimizer.parts],
            "step": self.step,
        }
        torch.save(state, partial)
        partial.replace(self.checkpoint)

    def _pairs(self) -> Iterator[tuple[torch.nn.Parameter, torch.nn.Parameter]]:
        return zip(self.model.parameters(), self.worker.parameters(), strict=True)

    @torch.no_grad()
    def _copy_weights(self) -> None:
        for weight, copied in self._pairs():
            copied.copy_(weight)

    def batches(self, steps: int) -> Iterable[list[Batch]]:
        """Generate what is left of so many steps, ahead of time in a process beside this one."""
        data = Steps(self.tokenizer, self.seed)
        return DataLoader(data, batch_size=None, sampler=range(self.step, steps), num_workers=1)

    def advance(self, batches: list[Batch], steps: int) -> float:
        """Take one step of a run of so many, and return its loss."""
        self._copy_weights()
        count = sum(int((batch.targets != IGNORED).sum()) for batch in batches)
        total = 0.0
        for batch in batches:
            loss = loss_sum(self.worker, batch) / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        for weight, copied in self._pairs():
            assert copied.grad is not None
            weight.grad, copied.grad = copied.grad.float(), None
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step(learning_rate(self.step, steps))
        self.step += 1
        return total


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=6000)
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
    curve = LossCurve(arguments.work / "loss.csv", run.step)
    print(f"{run.model.num_parameters():,} parameters, from step {run.step}", flush=True)
    with tqdm(total=arguments.steps, initial=run.step, unit="step") as bar:
        for batches in run.batches(arguments.steps):
            curve.add(run.advance(batches, arguments.steps))
            bar.set_postfix(loss=f"{curve.mean:.3f}", refresh=False)
            bar.update()
            if run.step % arguments.save_every == 0:
                run.save()
                curve.save()
                export(run.model, run.tokenizer, arguments.output)
    export(run.model, run.tokenizer, arguments.output)
    curve.draw(arguments.output / "loss.svg")


if __name__ == "__main__":
    main()
