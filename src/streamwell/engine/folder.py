"""Reads the small files of a model folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from streamwell.models.small_files import read_if_there

#: What a folder that is damaged, or says things of wrong types, does to code that trusts it.
BROKEN = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SafetensorError,
    TypeError,
    ValueError,
)

#: What `generate` would do that nobody gets here, with the values that mean nothing.
_UNSERVED: dict[str, tuple[object, ...]] = {
    "num_beams": (1,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "begin_suppress_tokens": ([],),
}
#: What encoder-decoders get.
_BANS = ("suppress_tokens", "bad_words_ids", "forced_bos_token_id")


def text_config(model_config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of the language model, which may be one of several in a folder."""
    found: Mapping[str, Any] = model_config.get("text_config") or model_config
    return found


def eos_token_ids(path: Path, model_config: Mapping[str, Any], vocab_size: int) -> frozenset[int]:
    """The ids that end an answer; those that the model cannot say are left out."""
    generation_config = read_if_there(path / "generation_config.json")
    for source in (generation_config, model_config, text_config(model_config)):
        if (ids := source.get("eos_token_id")) is not None:
            ids = ids if isinstance(ids, list) else [ids]
            return frozenset(i for i in ids if isinstance(i, int) and 0 <= i < vocab_size)
    return frozenset()


def unserved(path: Path, model_config: Mapping[str, Any], *, bans_tokens: bool) -> tuple[str, ...]:
    """What the model's authors recommend and nobody gets here, for the log.

    Args:
        path: the model folder.
        model_config: its `config.json`, which says it where there is no `generation_config.json`.
        bans_tokens: whether tokens that are never to be said, or always at first, are heeded.
    """
    said = read_if_there(path / "generation_config.json") or model_config
    plain = _UNSERVED if bans_tokens else {**_UNSERVED, **dict.fromkeys(_BANS, ([],))}
    asked = [
        f"{field}={said[field]!r:.40}"
        for field, values in plain.items()
        if said.get(field) is not None and said[field] not in values
    ]
    if not asked:
        return ()
    return (f"the model's configuration asks for what is not served: {', '.join(asked)}",)
