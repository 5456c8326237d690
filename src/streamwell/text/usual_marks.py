"""What models write around thoughts and calls of tools where their folders do not say it.

Most folders have no `response_template` yet. But a chat template that shows a model its own
thoughts and calls again writes the marks that the model has learned: they are looked for in there.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from streamwell.core.messages import PartKind
from streamwell.text.response_template import Region, ResponseTemplate

#: Behind which an answer begins: ChatML's (Qwen, SmolLM, Hermes), DeepSeek's, Llama 3's, GLM's.
_ANCHORS = (
    "<|im_start|>assistant",
    "<｜Assistant｜>",
    "<|start_header_id|>assistant<|end_header_id|>",
    "<|assistant|>",
)
_USUAL = (
    Region(PartKind.REASONING, ("<think>",), ("</think>",)),
    Region(PartKind.TOOL_CALL, ("<tool_call>",), ("</tool_call>",)),
)
#: Calls between the same marks that are no JSON: those of Qwen3-Coder and GLM-4.5.
_NO_JSON = ("<function=", "<arg_key>")

#: Harmony, which GPT-OSS speaks: an answer is messages in channels, whose marks are special tokens.
_HARMONY = ResponseTemplate(
    anchors=("<|start|>assistant",),
    regions=(
        Region(
            PartKind.CONTENT,
            (
                "<|start|>assistant",
                "<|channel|>final<|message|>",
                "<|channel|>final <|constrain|>json<|message|>",
                "<|channel|>commentary<|message|>",
            ),
            ("<|end|>",),
        ),
        Region(PartKind.REASONING, ("<|channel|>analysis<|message|>",), ("<|end|>",)),
        Region(
            PartKind.TOOL_CALL,
            (
                "<|channel|>commentary to=functions.",
                "<|channel|>analysis to=functions.",
                "<|start|>assistant to=functions.",
            ),
            ("<|end|>",),  # if it does not end the answer
            divider="<|message|>",
            fillers=("<|channel|>", "<|constrain|>", "commentary", "analysis", "json", "code"),
        ),
    ),
    shown=("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"),
)

Decode = Callable[[Sequence[int]], str]


def usual_response_template(
    chat_template: str, special: Collection[str] = ()
) -> ResponseTemplate | None:
    """What the marks in a chat template say of answers; `None` if there are none of these.

    `special` are tokens that no text shows.
    """
    if all(mark in chat_template for mark in ("<|start|>", "<|channel|>", "<|message|>")):
        return _HARMONY
    anchors = tuple(anchor for anchor in _ANCHORS if anchor in chat_template)
    regions = tuple(region for region in _USUAL if _is_in(chat_template, region, special))
    return ResponseTemplate(anchors, regions) if anchors and regions else None


def _is_in(chat_template: str, region: Region, special: Collection[str]) -> bool:
    if region.kind is PartKind.TOOL_CALL and any(mark in chat_template for mark in _NO_JSON):
        return False
    marks = region.opens + region.closes
    return all(mark in chat_template and mark not in special for mark in marks)


def showing(decode: Decode, shown: Mapping[int, str]) -> Decode:
    """A function that decodes ids as `decode` does, and shows special tokens by their ids."""
    if not shown:
        return decode

    def decode_and_show(ids: Sequence[int]) -> str:
        pieces, start = [], 0
        for at, token_id in enumerate(ids):
            if token_id in shown:
                pieces += [decode(ids[start:at]), shown[token_id]]
                start = at + 1
        return "".join([*pieces, decode(ids[start:])])

    return decode_and_show
