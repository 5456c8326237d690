"""Loads the model that guesses for another one, and refuses what cannot guess for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from streamwell.core.errors import LoadError
from streamwell.engine.assemble import assemble
from streamwell.engine.assembled import Assembled
from streamwell.engine.checkpoint import Report
from streamwell.engine.families import max_positions
from streamwell.engine.folder import BROKEN, text_config
from streamwell.engine.messages import EngineConfig
from streamwell.engine.seq2seq.families import is_encoder_decoder
from streamwell.models.inspection import inspect_model
from streamwell.models.small_files import read_object
from streamwell.models.vocabulary import check_same_vocabulary


def load_draft(
    config: EngineConfig, model_config: Mapping[str, Any], max_model_len: int, report: Report
) -> Assembled | None:
    """The draft model that `config` names, without a cache yet; `None` if it names none.

    `model_config` is that of the model for which it shall guess. For adapters it guesses as if they
    were not there.

    Raises:
        LoadError: it cannot be loaded, or cannot guess for this model.
    """
    if config.speculative_model is None:
        return None
    if is_encoder_decoder(model_config):
        raise LoadError("--speculative-model guesses for decoders, not for encoder-decoders")
    path = Path(config.speculative_model)
    try:
        draft_config = _check(config, path, model_config, max_model_len)
        return assemble(
            msgspec.structs.replace(config, model_path=str(path), enable_lora=False),
            path,
            draft_config,
            max_model_len,
            lambda stage, progress: report(f"draft model: {stage}", progress),
            lambda _bytes_per_token: None,  # it has no cache of its own
        )
    except LoadError as error:
        raise LoadError(f"--speculative-model: {error}") from error
    except BROKEN as error:
        raise LoadError(f"--speculative-model: cannot load {path}: {error!r}") from error


def _check(
    config: EngineConfig, path: Path, model_config: Mapping[str, Any], max_model_len: int
) -> Mapping[str, Any]:
    """Whether it may guess, told from small files; returns its config."""
    inspect_model(path, trust_remote_code=config.trust_remote_code)
    draft_config = read_object(path / "config.json")
    if is_encoder_decoder(draft_config):
        raise LoadError(f"{path} holds an encoder-decoder, which cannot guess")
    says_tokens = check_same_vocabulary(Path(config.model_path), path)
    sizes = [text_config(c).get("vocab_size") for c in (draft_config, model_config)]
    if not says_tokens and sizes[0] != sizes[1]:
        raise LoadError(f"{path} knows {sizes[0]} tokens, and the model {sizes[1]}")
    longest = max_positions(text_config(draft_config))
    if longest and longest < max_model_len:
        raise LoadError(
            f"{path} reads at most {longest} tokens, and the model {max_model_len}: "
            f"give --max-model-len {longest}, or another draft model"
        )
    return draft_config
