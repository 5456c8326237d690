"""The adapter's trainer: teaches Brooklet a sailor's voice in a few minutes, on a CPU.

Low-rank updates beside the frozen layers (Hu et al. 2021, arXiv:2106.09685), learned from
conversations of the same corpus in other words.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tqdm import tqdm
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from training.brooklet import packed_attention
from training.brooklet.batches import IGNORED, Batch, Steps, Text
from training.brooklet.tokenizer import encode_conversation, load_tokenizer
from training.brooklet.train import ARTEFACTS as BROOKLET
from training.brooklet.train import loss_sum
from training.brooklet_sailor.voice import sailors_conversation
from training.trainer import has_fast_bfloat16, parse_arguments, prepare, rate_share

RANK = 8
PEAK_RATE = 4e-3
COOL_DOWN = 0.5  # of all steps
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ARTEFACTS = Path(__file__).resolve().parents[2] / "src/streamwell/models/brooklet_sailor"


def text(tokenizer: PreTrainedTokenizerFast, rng: Random, step: int) -> Text:
    """Draw a text: its tokens, and which of them are to be learned."""
    return encode_conversation(tokenizer, sailors_conversation(rng))


def adapted(folder: Path) -> PeftModel:
    """Brooklet with new, small layers beside its own; only these are trained."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.set_attn_implementation(packed_attention.NAME)
    config = LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=2 * RANK, target_modules=TARGETS)
    return get_peft_model(model, config)


def advance(model: PeftModel, optimizer: torch.optim.Optimizer, batches: list[Batch]) -> float:
    """Take one step, and return its loss."""
    count = sum(int((batch.targets != IGNORED).sum()) for batch in batches)
    total = 0.0
    for batch in batches:
        with torch.autocast("cpu", torch.bfloat16, enabled=has_fast_bfloat16()):
            loss = loss_sum(model.get_base_model(), batch) / count
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return total


def export(model: PeftModel, target: Path) -> None:
    """Write the folder as PEFT does, in half precision, without naming a folder of this machine."""
    model.half()
    config = model.peft_config["default"]
    config.base_model_name_or_path, config.target_modules = "brooklet", TARGETS
    card = target / "README.md"
    ours = card.read_text(encoding="utf-8") if card.exists() else None
    model.save_pretrained(target, save_embedding_layers=False)
    (target / "adapter_model.safetensors").chmod(0o644)
    if ours is None:
        card.unlink()  # PEFT's own has nothing to say yet
    else:
        card.write_text(ours, encoding="utf-8")


def main() -> None:
    """Train from the start, and write the adapter's folder."""
    arguments = parse_arguments(__doc__.splitlines()[0], steps=160, threads=2, output=ARTEFACTS)
    prepare(arguments.threads)
    torch.manual_seed(arguments.seed)
    model = adapted(BROOKLET)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    print(f"{sum(map(torch.numel, weights)):,} parameters")
    optimizer = torch.optim.AdamW(weights, lr=PEAK_RATE, weight_decay=0.0)
    steps = Steps(load_tokenizer(BROOKLET), arguments.seed, text)
    bar = tqdm(range(arguments.steps), unit="step")
    for step in bar:
        for group in optimizer.param_groups:
            group["lr"] = PEAK_RATE * rate_share(step, arguments.steps, COOL_DOWN)
        bar.set_postfix(loss=f"{advance(model, optimizer, steps[step]):.3f}", refresh=False)
    export(model, arguments.output)


if __name__ == "__main__":
    main()
