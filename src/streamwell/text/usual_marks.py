"""What models write around thoughts and calls of tools where their folders do not say it.

Most folders have no `response_template` yet. But a chat template that shows a model its own
thoughts and calls again writes the marks that the model has learned: they are looked for in there.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

#: Behind which an answer begins: ChatML's (Qwen, SmolLM, Hermes), DeepSeek's, Llama 3's, GLM's.
_ANCHORS = (
    "<|im_start|>assistant",
    "<｜Assistant｜>",
    "<|start_header_id|>assistant<|end_header_id|>",
    "<|assistant|>",
)
_THOUGHTS, _CALLS = ("<think>", "</think>"), ("<tool_call>", "</tool_call>")
#: Calls between the same marks that are no JSON: those of Qwen3-Coder and GLM-4.5.
_NO_JSON = ("<function=", "<arg_key>")


def usual_response_template(
    chat_template: str, unseen: Collection[str] = ()
) -> dict[str, Any] | None:
    """A `response_template` of the marks in a chat template; `None` if there are none of these.

    `unseen` are tokens that no text shows.
    """

    def has(marks: tuple[str, str]) -> bool:
        return all(mark in chat_template and mark not in unseen for mark in marks)

    anchors = [anchor for anchor in _ANCHORS if anchor in chat_template]
    fields: dict[str, Any] = {}
    if has(_THOUGHTS):
        fields["reasoning_content"] = {"open": _THOUGHTS[0], "close": _THOUGHTS[1]}
    if has(_CALLS) and not any(mark in chat_template for mark in _NO_JSON):
        fields["tool_calls"] = {"open": _CALLS[0], "close": _CALLS[1], "content": "json"}
    return {"start_anchor": anchors, "fields": fields} if anchors and fields else None
