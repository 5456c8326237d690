"""Parameters that we know and do not serve: refused, unless their value changes nothing.

A field that nobody knows is another matter: it is tolerated (clients send many) and its name is
returned, so that it can be logged once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamwell.core.errors import InvalidRequest

#: Known fields that would change the answer, and the values that would not.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "add_special_tokens": (True,),
    "allowed_token_ids": ([],),
    "audio": (),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "conversation": (),
    "detokenize": (True,),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "include_reasoning": (True,),
    "include_stop_str_in_output": (False,),
    "instructions": (),
    "length_penalty": (1, 1.0),
    "logits_processors": ([],),
    "logprobs": (False,),
    "max_completion_tokens": (),
    "max_new_tokens": (),
    "max_output_tokens": (),
    "min_new_tokens": (0,),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "previous_item_id": (),
    "previous_response_id": (),
    "preset": (),
    "prompt_embeds": (),
    "prompt_logprobs": (),
    "reasoning": ({},),
    "reasoning.context": ("auto",),
    "reasoning.effort": (),
    "reasoning.generate_summary": (),
    "reasoning.mode": ("standard",),
    "reasoning.summary": (),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "structured_outputs": (),
    "suffix": ("",),
    "thinking_token_budget": (),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncate": (),
    "truncate_prompt_tokens": (),
    "truncation": ("disabled",),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
    "stream_options.include_obfuscation": (False,),
}
#: The same for chats: their template writes the special tokens.
_NEUTRAL_IN_CHAT: Mapping[str, tuple[Any, ...]] = {**_NEUTRAL, "add_special_tokens": (False,)}

#: The same for the Responses API, on top; with a dot, those of nested objects.
_NEUTRAL_IN_RESPONSES: Mapping[str, tuple[Any, ...]] = {
    **_NEUTRAL_IN_CHAT,
    "access_programs": ({},),
    "background_options": ({}, {"completion_window": "soonest"}),
    "context_management": ([],),
    "image": ({},),
    "include": ([],),
    "max_tool_calls": (),
    "prompt": (),
    "text": ({},),
    "text.format": ({"type": "text"},),
    "text.verbosity": ("medium",),
}
_NESTED = ("reasoning", "stream_options", "text")

#: Known fields that describe the request and never change its answer.
_HARMLESS = frozenset(
    {
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "request_id",
        "safety_identifier",
        "service_tier",
        "stream_options.continuous_usage_stats",  # the last chunk has them all the same
    }
)


def refuse_unsupported(extra: Mapping[str, Any] | None) -> list[str]:
    """Look at the fields that the schema does not have; returns the names nobody knows.

    Raises:
        InvalidRequest: a known parameter that we do not serve is set.
    """
    return _refuse(extra, _NEUTRAL)


def refuse_unsupported_in_chat(extra: Mapping[str, Any] | None) -> list[str]:
    """The same for chat completions."""
    return _refuse(extra, _NEUTRAL_IN_CHAT)


def refuse_unsupported_in_response(extra: Mapping[str, Any] | None) -> list[str]:
    """The same for the Responses API."""
    return _refuse(extra, _NEUTRAL_IN_RESPONSES)


def _refuse(extra: Mapping[str, Any] | None, neutral: Mapping[str, tuple[Any, ...]]) -> list[str]:
    unknown = []
    for name, value in _flat(extra or {}).items():
        if name in neutral:
            if value is not None and not _is_one_of(value, neutral[name]):
                raise InvalidRequest(f"{name} is not supported yet", name)
        elif name not in _HARMLESS:
            unknown.append(name)
    return unknown


def _flat(extra: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in extra.items():
        if name in _NESTED and isinstance(value, dict):
            fields |= {f"{name}.{inner}": inner_value for inner, inner_value in value.items()}
        else:
            fields[name] = value
    return fields


def _is_one_of(value: object, neutral: tuple[Any, ...]) -> bool:
    """Equal and of the same type: `logprobs: 0` asks for something that `false` does not."""
    return any(value == known and type(value) is type(known) for known in neutral)
