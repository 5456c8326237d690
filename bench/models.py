"""Models to measure: random weights in the shapes of real ones, built once into `bench/models/`.

Speed does not depend on what the weights say, so nothing is downloaded. The tokenizer is trained on
the standard library's sources. Embedding rows that it cannot decode, and those of the control
tokens, are zero: with tied embeddings their logits are 0, never the largest, so that greedy
output is always text and never ends by itself.

`python -m bench.models NAME...` builds ahead of time.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bench.shapes import SHAPES, Shape

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MODELS_DIR = Path(__file__).parent / "models"

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS_TOKEN_ID = 2
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def model_folder(name: str) -> Path:
    """The folder of a model: one of `SHAPES`, built if need be, or a folder of the caller's."""
    if name not in SHAPES:
        folder = Path(name).expanduser().resolve()
        if not (folder / "config.json").is_file():
            raise SystemExit(f"{name} is neither a model folder nor one of {', '.join(SHAPES)}")
        return folder
    folder = MODELS_DIR / name
    if not folder.is_dir():
        _build(SHAPES[name], folder)
    return folder


def adapter_folder(model: Path) -> Path:
    """Where `bench.adapters` keeps the adapter of a model."""
    return MODELS_DIR / f"{model.name}-adapter"


@contextlib.contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A folder beside `folder`, in `MODELS_DIR`, that takes its place: it is whole or not there."""
    print(f"building {folder.name} ...", flush=True)
    MODELS_DIR.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=MODELS_DIR, prefix=".building-"))
    try:
        yield scratch
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _build(shape: Shape, folder: Path) -> None:
    with building(folder) as scratch:
        tokenizer = _train_tokenizer(shape.tokenizer_size)
        tokenizer.save_pretrained(scratch)
        _save_model(shape, len(tokenizer), scratch)


def _train_tokenizer(size: int) -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library = Path(sysconfig.get_path("stdlib"))
    sources = [*library.glob("*.py"), *library.glob("asyncio/*.py"), *library.glob("email/*.py")]
    tokenizer.train([str(path) for path in sorted(sources)], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=CONTROL_TOKENS[0],
        pad_token=CONTROL_TOKENS[0],
        eos_token=CONTROL_TOKENS[EOS_TOKEN_ID],
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _save_model(shape: Shape, tokenizer_size: int, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        shape.model_type,
        tie_word_embeddings=True,
        bos_token_id=0,
        pad_token_id=0,
        eos_token_id=EOS_TOKEN_ID,
        **shape.config,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    with torch.no_grad():
        embeddings = model.get_input_embeddings().weight
        embeddings[tokenizer_size:] = 0
        embeddings[: len(CONTROL_TOKENS)] = 0
    model.generation_config.eos_token_id = EOS_TOKEN_ID
    model.generation_config.pad_token_id = 0
    model.save_pretrained(folder)


def main() -> None:
    """Build the models that are named."""
    parser = argparse.ArgumentParser(prog="python -m bench.models", description=main.__doc__)
    parser.add_argument("names", nargs="+", choices=SHAPES)
    for name in parser.parse_args().names:
        print(model_folder(name))


if __name__ == "__main__":
    main()
