"""The trainer: teaches a small T5 the corpus from scratch, on a CPU.

Every batch is generated from the seed and the step number, so a run that is stopped and
started again sees the same data as one that never stopped.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from tqdm import tqdm
from transformers import T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5DenseGatedActDense

from training.brooklet_t5.batches import IGNORED, Batch, batches_of_step
from training.brooklet_t5.model import ARTEFACTS, generation_config, make_model
from training.brooklet_t5.tokenizer import build_tokenizer
from training.loss_curve import LossCurve
from training.muon import Muon
from training.trainer import (
    Checkpoint,
    export,
    has_fast_bfloat16,
    kept_tokenizer,
    parse_arguments,
    prepare,
    rate_share,
)

MATRIX_RATE = 0.02  # Muon's: each step turns a matrix by about so much of its size
BIAS_RATE = 0.05  # of the relative biases, which alone tell positions and have to grow large
OTHER_RATE = 0.01
COOL_DOWN = 0.4  # of all steps
THREADS = 1  # sums in another order give other weights


def make_optimizers(model: T5ForConditionalGeneration) -> list[torch.optim.Optimizer]:
    """Muon for the matrices between embedding and head, AdamW for all else."""
    # T5 does not scale its scores down; its queries are born small and have to stay so.
    query_rate = MATRIX_RATE * model.config.d_kv**-0.5
    matrices: dict[float, list[torch.nn.Parameter]] = {MATRIX_RATE: [], query_rate: []}
    others: dict[float, list[torch.nn.Parameter]] = {BIAS_RATE: [], OTHER_RATE: []}
    for name, weight in model.named_parameters():
        if "relative_attention_bias" in name:
            others[BIAS_RATE].append(weight)
        elif weight.ndim < 2 or "shared" in name:
            others[OTHER_RATE].append(weight)
        else:
            matrices[query_rate if "Attention.q." in name else MATRIX_RATE].append(weight)

    def groups(by_rate: dict[float, list[torch.nn.Parameter]]) -> list[dict[str, object]]:
        return [{"params": weights, "lr": rate} for rate, weights in by_rate.items()]

    return [
        Muon(groups(matrices), weight_decay=0.01),
        torch.optim.AdamW(groups(others), weight_decay=0.0, betas=(0.9, 0.98), fused=True),
    ]


def summed_loss(model: T5ForConditionalGeneration, batch: Batch) -> torch.Tensor:
    """The sum over the tokens of all outputs."""
    logits = model(
        input_ids=batch.token_ids,
        attention_mask=batch.attends,
        decoder_input_ids=model.prepare_decoder_input_ids_from_labels(batch.targets),
    ).logits
    return cross_entropy(
        logits.float().flatten(0, 1),
        batch.targets.flatten(),
        ignore_index=IGNORED,
        reduction="sum",
    )


def hasten(model: T5ForConditionalGeneration) -> None:
    """Choose the kernels that train short rows fastest on a CPU; they compute the same."""
    model.set_attn_implementation("eager")
    for module in model.modules():
        if isinstance(module, T5DenseGatedActDense):
            module.act = torch.nn.GELU("tanh")  # in one pass where Transformers takes eight


class Run:
    """One training run, with its checkpoint."""

    def __init__(self, work: Path, seed: int) -> None:
        work.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(seed)
        self.seed = seed
        self.tokenizer = kept_tokenizer(work, build_tokenizer, seed)
        self.model = make_model(self.tokenizer)
        hasten(self.model)
        self.optimizers = make_optimizers(self.model)
        self.peak_rates = [[group["lr"] for group in o.param_groups] for o in self.optimizers]
        self.checkpoint = Checkpoint(work, self.model, self.optimizers)
        self.step = self.checkpoint.load()

    def advance(self, steps: int, *, in_bfloat16: bool) -> float:
        """Take one step of a run of so many, and return its loss per token."""
        share = rate_share(self.step, steps, COOL_DOWN)
        for optimizer, peaks in zip(self.optimizers, self.peak_rates, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * share
        batches = batches_of_step(self.tokenizer, self.seed, self.step)
        num_targets = sum(batch.num_targets for batch in batches)
        total = 0.0
        for batch in batches:
            with torch.autocast("cpu", torch.bfloat16) if in_bfloat16 else nullcontext():
                loss = summed_loss(self.model, batch) / num_targets
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        return total


def keep(run: Run, curve: LossCurve, output: Path) -> None:
    """Save what is needed to go on, and the model as it is now."""
    run.checkpoint.save(run.step)
    curve.save()
    export(run.model, generation_config(run.tokenizer), run.tokenizer, output)


def main() -> None:
    """Train to the end, exporting the model at every checkpoint."""
    arguments = parse_arguments(
        __doc__.splitlines()[0],
        steps=2200,
        threads=THREADS,
        work="build/brooklet-t5",
        output=ARTEFACTS,
    )
    prepare(arguments.threads)
    run = Run(arguments.work, arguments.seed)
    in_bfloat16 = has_fast_bfloat16()
    curve = LossCurve(arguments.work / "loss.csv", run.step)
    precision = "bfloat16" if in_bfloat16 else "float32"
    print(f"{run.model.num_parameters():,} parameters, in {precision}, from step {run.step}")
    with tqdm(total=arguments.steps, initial=run.step, unit="step") as bar:
        while run.step < arguments.steps:
            curve.add(run.advance(arguments.steps, in_bfloat16=in_bfloat16))
            bar.set_postfix(loss=f"{curve.mean:.4f}", refresh=False)
            bar.update()
            if run.step % arguments.save_every == 0:
                keep(run, curve, arguments.output)
    keep(run, curve, arguments.output)
    curve.draw(arguments.output / "loss.svg")


if __name__ == "__main__":
    main()
