"""Marks of thoughts and calls that a chat template shows, where no response template is given."""

from __future__ import annotations

import pytest

from streamwell.core.messages import AnswerPart, PartKind
from streamwell.text.response_parser import ResponseParser, joined
from streamwell.text.response_template import parse_response_template
from streamwell.text.usual_marks import usual_response_template

CONTENT, REASONING, CALL = PartKind.CONTENT, PartKind.REASONING, PartKind.TOOL_CALL
#: What matters in the chat templates of real models.
CHAT_ML = "{{ '<|im_start|>assistant\\n' }}"
THINKS = "{{ '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}"
CALLS = "{{ '<tool_call>\\n{\"name\": \"' + call.name + '\"}\\n</tool_call>' }}"
XML_CALLS = "{{ '<tool_call>\\n<function=' + call.name + '>\\n</function>\\n</tool_call>' }}"
DEEPSEEK = "{{ '<｜Assistant｜><think>\\n' }}{{ content.split('</think>')[-1] }}"

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
    ],
)
def test_answers_are_split_by_the_marks_of_the_chat_template(
    chat_template: str, prompt: str, answer: str, parts: tuple[AnswerPart, ...]
) -> None:
    """As if the folder had said so, after what the prompt has of the answer."""
    source = usual_response_template(chat_template)
    assert source is not None
    template = parse_response_template(source)

    parser = ResponseParser(template, (REASONING, CALL), template.answer_begun_in(prompt))

    assert parts == joined([*parser.push(answer), *parser.flush()])


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
    source = usual_response_template(CHAT_ML + THINKS + CALLS, unseen={"</think>"})

    assert source is not None
    assert ["tool_calls"] == list(source["fields"])
