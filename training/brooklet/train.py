"""The trainer: teaches a small Llama the corpus from scratch, on a CPU.

Every batch is generated from the seed and the step number, so a run that is stopped and
started again sees the same data as one that never stopped. Each core has a process of its own,
which computes the gradients of its part of a step; all add them up and take the same step.
`torchrun` starts them, as `make train-brooklet` does.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
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
from training.brooklet.batches import IGNORED, Batch, Steps, draw_text
from training.brooklet.schedule import STEPS, Schedule
from training.brooklet.tokenizer import CONTEXT_LENGTH, build_tokenizer
from training.loss_curve import LossCurve
from training.muon import Muon
from training.trainer import (
    Checkpoint,
    export,
    has_fast_bfloat16,
    kept_tokenizer,
    parse_arguments,
    prepare,
)

PEAK_RATE = 3e-3
ARTEFACTS = Path(__file__).resolve().parents[2] / "src/streamwell/models/brooklet"


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Make the model with random weights."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=576,
        num_hidden_layers=8,
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


def mean_model(model: LlamaForCausalLM, other: LlamaForCausalLM) -> LlamaForCausalLM:
    """A model of the mean weights of two.

    What either gets wrong by chance, the mean gets right more often than not
    (https://arxiv.org/abs/1803.05407).
    """
    mean = copy.deepcopy(model)
    with torch.no_grad():
        for weight, weight_there in zip(mean.parameters(), other.parameters(), strict=True):
            weight.lerp_(weight_there, 0.5)
    return mean


def keep(run: Run, curve: LossCurve, output: Path) -> None:
    """Save what is needed to go on, and the model as it is now."""
    run.checkpoint.save(run.step)
    curve.save()
    generation = GenerationConfig(
        do_sample=True,
        temperature=0.3,
        top_p=0.95,
        eos_token_id=run.tokenizer.eos_token_id,
        pad_token_id=run.tokenizer.pad_token_id,
    )
    export(run.published, generation, run.tokenizer, output)


class Optimizer:
    """Muon for the matrices of the layers, AdamW for the embeddings and the norms' weights.

    Each process works out the updates by Muon of its share of the matrices.
    """

    def __init__(self, model: LlamaForCausalLM) -> None:
        layers = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
        in_layers = {id(weight) for weight in layers}
        rest = [weight for weight in model.parameters() if id(weight) not in in_layers]
        self._muon = ZeroRedundancyOptimizer(
            layers,
            Muon,
            lr=PEAK_RATE,
            weight_decay=0.05,
            adjust_lr_fn="match_rms_adamw",
        )
        adamw = torch.optim.AdamW(rest, lr=PEAK_RATE, weight_decay=0.0, betas=(0.9, 0.98))
        self.parts: list[torch.optim.Optimizer] = [self._muon, adamw]

    def step(self, rate: float) -> None:
        """Update the weights at this share of the peak rate, and forget the gradients."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate * PEAK_RATE
            part.step()
            part.zero_grad()

    def gather(self) -> None:
        """Give the first process what a checkpoint needs of the others; all of them call it."""
        self._muon.consolidate_state_dict(to=0)


class Run:
    """One process of a training run, with the run's checkpoint."""

    def __init__(self, work: Path, seed: int, steps: int = STEPS) -> None:
        torch.manual_seed(seed)
        self.schedule = Schedule(steps)
        self.seed, self._work = seed, work
        self.tokenizer = kept_tokenizer(work, build_tokenizer, seed)
        self.model = make_model(self.tokenizer)
        #: As the model was when the third round began, or the last one.
        self.round_start = copy.deepcopy(self.model)
        self.worker = copy.deepcopy(self.model)  # computes; the other is what learns
        if has_fast_bfloat16():
            self.worker.bfloat16()
        torch._dynamo.config.recompile_limit = 16  # above the number of shapes
        for layer in self.worker.model.layers:  # all alike, so compiled once for each shape
            layer.compile(dynamic=False)
        self._make_optimizer()
        self.step = self.checkpoint.load()

    @property
    def published(self) -> LlamaForCausalLM:
        """The model as it is now; from the third round on its mean with the round's start."""
        _, third_round, _ = self.schedule.later_rounds
        if self.step <= third_round:
            return self.model
        return mean_model(self.round_start, self.model)

    def begin_round(self) -> None:
        """Remember the weights; the last round begins with a finished model, as it is published."""
        if self.step == self.schedule.later_rounds[-1]:
            self.model.load_state_dict(self.published.half().state_dict())
            self._make_optimizer()
        self.round_start.load_state_dict(self.model.state_dict())

    def _make_optimizer(self) -> None:
        """One that remembers nothing, and the checkpoint that it is kept in."""
        self.optimizer = Optimizer(self.model)
        kept = torch.nn.ModuleList([self.model, self.round_start])
        self.checkpoint = Checkpoint(self._work, kept, self.optimizer.parts)

    def batches(self) -> Iterable[list[Batch]]:
        """Generate those of the steps that are left, ahead of time in a process beside this one."""
        part, parts = dist.get_rank(), dist.get_world_size()
        draw = partial(draw_text, schedule=self.schedule)
        data = Steps(self.tokenizer, self.seed, draw, part=part, parts=parts)
        left = range(self.step, self.schedule.steps)
        return DataLoader(data, batch_size=None, sampler=left, num_workers=1)

    def advance(self, batches: list[Batch]) -> float:
        """Take one step with the other processes, and return its loss."""
        for weight, copied in zip(self.model.parameters(), self.worker.parameters(), strict=True):
            copied.data.copy_(weight.data)
            copied.grad = torch.zeros_like(copied)
        total, count = 0.0, 0
        for batch in batches:
            loss = loss_sum(self.worker, batch)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
            count += int((batch.targets != IGNORED).sum())
        total, count = self._share_gradients(total, count)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step(self.schedule.rate_at(self.step))
        self.step += 1
        return total / count

    def _share_gradients(self, total: float, count: int) -> tuple[float, int]:
        """Add up losses, counts of tokens and gradients of all processes, and take their mean."""
        gradients = [copied.grad for copied in self.worker.parameters() if copied.grad is not None]
        parts = [torch.tensor([total, count]), *(part.float().flatten() for part in gradients)]
        shared = torch.cat(parts)
        dist.all_reduce(shared)
        total, count = shared[0].item(), int(shared[1])
        sizes = [gradient.numel() for gradient in gradients]
        means = (shared[2:] / count).split(sizes)
        for weight, mean in zip(self.model.parameters(), means, strict=True):
            weight.grad = mean.view_as(weight)
        return total, count


def main() -> None:
    """Train to the end, exporting the model at every checkpoint.

    The first process shows how far the run is, and saves it. With more or fewer than two processes,
    texts are drawn and sums made in another order, which gives other weights.
    """
    arguments = parse_arguments(
        __doc__.splitlines()[0], steps=STEPS, work="build/brooklet", output=ARTEFACTS
    )
    prepare(threads=1)
    dist.init_process_group("gloo")
    is_first = dist.get_rank() == 0
    if is_first:
        arguments.work.mkdir(parents=True, exist_ok=True)
        kept_tokenizer(arguments.work, build_tokenizer, arguments.seed)
    dist.barrier()
    run = Run(arguments.work, arguments.seed, arguments.steps)
    later_rounds = run.schedule.later_rounds
    curve = LossCurve(arguments.work / "loss.csv", run.step)
    with tqdm(total=arguments.steps, initial=run.step, unit="step", disable=not is_first) as bar:
        for batches in run.batches():
            curve.add(run.advance(batches))
            bar.set_postfix(loss=f"{curve.mean:.3f}", refresh=False)
            bar.update()
            if run.step in later_rounds[1:]:
                run.begin_round()
            if run.step % arguments.save_every == 0 or run.step in later_rounds:
                run.optimizer.gather()
                if is_first:
                    keep(run, curve, arguments.output)
    run.optimizer.gather()
    if is_first:
        keep(run, curve, arguments.output)
        curve.draw(arguments.output / "loss.svg")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
