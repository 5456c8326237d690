"""Models that see pictures, too. Of these only the decoder is served, which is of a known family.

Without a picture they compute what their decoders do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamwell.engine.families.fields import FOREIGN

#: By the `model_type` of the whole.
PICTURES = frozenset({"gemma3", "mistral3"})
#: Regular expressions for where the decoder's weights are, published and as Transformers saves
#: them now, and what takes their place.
NAMES = (
    (r"^(model\.)?language_model\.(model\.)?(?!lm_head)", "model."),
    (r"^language_model\.lm_head\.", "lm_head."),
)
#: How the names of all other weights begin.
OTHERS = r"(model\.)?(vision_tower|multi_modal_projector)\."


def decoder_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of the decoder, with what the whole says in its place; or the same config."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in PICTURES:
        return config
    inner = config.get("text_config")
    if not isinstance(inner, dict):
        return {}
    outer = {name: config[name] for name in FOREIGN if config.get(name)}
    # whatever the decoder's own config says
    return inner | outer | {"tie_word_embeddings": config.get("tie_word_embeddings", True)}
