"""Marks of thoughts and calls that a chat template shows, where no response template is given."""

from __future__ import annotations

import pytest

from streamwell.core.messages import AnswerPart, PartKind
from streamwell.text.response_parser import ResponseParser, joined
from streamwell.text.usual_marks import showing, usual_response_template

CONTENT, REASONING, CALL = PartKind.CONTENT, PartKind.REASONING, PartKind.TOOL_CALL
#: What matters in the chat templates of real models.
CHAT_ML = "{{ '<|im_start|>assistant\\n' }}"
THINKS = "{{ '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}"
CALLS = "{{ '<tool_call>\\n{\"name\": \"' + call.name + '\"}\\n</tool_call>' }}"
XML_CALLS = "{{ '<tool_call>\\n<function=' + call.name + '>\\n</function>\\n</tool_call>' }}"
DEEPSEEK = "{{ '<｜Assistant｜><think>\\n' }}{{ content.split('</think>')[-1] }}"
HARMONY = "{{ '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}"

ANSWER = (
    '<think>\nHm.\n</think>\n\nHere:\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)


@pytest.mark.parametrize(
    ("chat_template", "prompt", "answer", "parts"),
    [
        pytest.param(
            CHAT_ML + THINKS + CALLS,
            "<|im_start|>assistant\n",
            ANSWER,
            (
                AnswerPart(REASONING, "Hm."),
                AnswerPart(CONTENT, "Here:"),
                AnswerPart(CALL, "{}", "now", 0),
            ),
            id="thoughts and calls",
        ),
        pytest.param(
            CHAT_ML + THINKS,
            "<|im_start|>assistant\n<think>\n\n</think>\n\n",
            "Hello!",
            (AnswerPart(CONTENT, "Hello!"),),
            id="thoughts that the prompt has ended",
        ),
        pytest.param(
            DEEPSEEK,
            "Hi<｜Assistant｜><think>\n",
            "Hm.\n</think>\n\nHello!",
            (AnswerPart(REASONING, "Hm."), AnswerPart(CONTENT, "Hello!")),
            id="thoughts that the prompt has begun",
        ),
        pytest.param(
            CHAT_ML + THINKS + XML_CALLS,
            "<|im_start|>assistant\n",
            "<tool_call>\n<function=now>\n</function>\n</tool_call>",
            (AnswerPart(CONTENT, "<tool_call>\n<function=now>\n</function>\n</tool_call>"),),
            id="calls that are no JSON",
        ),
        pytest.param(
            HARMONY,
            "<|start|>assistant",
            "<|channel|>analysis<|message|>Hm.<|end|>"
            "<|start|>assistant<|channel|>final<|message|>Hello!",
            (AnswerPart(REASONING, "Hm."), AnswerPart(CONTENT, "Hello!")),
            id="Harmony",
        ),
        pytest.param(
            HARMONY,
            "<|start|>assistant",
            "<|channel|>analysis<|message|>Hm.<|end|>"
            "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
            "<|start|>assistant<|channel|>commentary to=functions.get_time json<|message|>"
            '{"city": "Oslo"}',
            (
                AnswerPart(REASONING, "Hm."),
                AnswerPart(CONTENT, "I look."),
                AnswerPart(CALL, '{"city": "Oslo"}', "get_time", 0),
            ),
            id="a call in Harmony",
        ),
        pytest.param(
            HARMONY,
            "<|start|>assistant",
            "<|channel|>analysis<|message|>Hm.<|end|>"
            "<|start|>assistant to=functions.get_time<|channel|>commentary json<|message|>{}",
            (AnswerPart(REASONING, "Hm."), AnswerPart(CALL, "{}", "get_time", 0)),
            id="a call in Harmony, as its template shows it",
        ),
        pytest.param(
            HARMONY,
            "<|start|>assistant",
            "<|channel|>commentary to=functions.get_time json<|message|>Oslo",
            (
                AnswerPart(
                    CONTENT, "<|channel|>commentary to=functions.get_time json<|message|>Oslo"
                ),
            ),
            id="no arguments in Harmony",
        ),
        pytest.param(
            HARMONY,
            "<|start|>assistant",
            "<|channel|>commentary to=functions.get.time json<|message|>{}",
            (AnswerPart(CONTENT, "<|channel|>commentary to=functions.get.time json<|message|>{}"),),
            id="no name in Harmony",
        ),
        pytest.param(
            HARMONY,
            "<|start|>assistant",
            "<|channel|>commentary to=functions. json<|message|>{}<|end|>"
            "<|start|>assistant<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}"
            "<|end|><|start|>assistant<|channel|>final<|message|>Done",
            (
                AnswerPart(CONTENT, "<|channel|>commentary to=functions. json<|message|>{}<|end|>"),
                AnswerPart(CALL, "{}", "f", 0),
                AnswerPart(CONTENT, "Done"),
            ),
            id="calls that do not end the answer of Harmony",
        ),
        pytest.param(
            HARMONY,
            "<|start|>assistant",
            "<|channel|>commentary to=functions.get or not json<|message|>{}",
            (
                AnswerPart(
                    CONTENT, "<|channel|>commentary to=functions.get or not json<|message|>{}"
                ),
            ),
            id="more than a name in Harmony",
        ),
        pytest.param(
            HARMONY,
            "<|start|>assistant",
            "<|channel|>final <|constrain|>json<|message|>{}",
            (AnswerPart(CONTENT, "{}"),),
            id="JSON in Harmony",
        ),
    ],
)
def test_answers_are_split_by_the_marks_of_the_chat_template(
    chat_template: str, prompt: str, answer: str, parts: tuple[AnswerPart, ...]
) -> None:
    """As if the folder had said so, after what the prompt has of the answer."""
    template = usual_response_template(chat_template)
    assert template is not None

    for size in (1, 7, len(answer)):
        parser = ResponseParser(template, (REASONING, CALL), template.answer_begun_in(prompt))
        pieces = [answer[at : at + size] for at in range(0, len(answer), size)]
        pushed = [part for piece in pieces for part in parser.push(piece)]

        assert parts == joined([*pushed, *parser.flush()])


def test_marks_that_are_special_tokens_are_shown() -> None:
    """Where they stand; all else is decoded as ever, and ids that show nothing show nothing."""
    decode = showing(lambda ids: "".join(map(str, ids)), {7: "<|end|>"})

    assert "12<|end|><|end|>3" == decode([1, 2, 7, 7, 3])
    assert "" == decode([])


@pytest.mark.parametrize(
    "chat_template",
    [
        pytest.param(CHAT_ML, id="no marks"),
        pytest.param(THINKS + CALLS, id="nobody knows where an answer begins"),
        pytest.param(CHAT_ML + "<think>", id="thoughts that never end"),
        pytest.param(CHAT_ML + XML_CALLS, id="calls that are no JSON"),
        pytest.param("", id="no template"),
    ],
)
def test_where_the_marks_are_not_known_answers_stay_whole(chat_template: str) -> None:
    """Nothing is guessed."""
    assert usual_response_template(chat_template) is None


def test_marks_that_no_text_shows_are_left_out() -> None:
    """Special tokens, in some tokenizers."""
    template = usual_response_template(CHAT_ML + THINKS + CALLS, special={"</think>"})

    assert template is not None
    assert [CALL] == [region.kind for region in template.regions]
