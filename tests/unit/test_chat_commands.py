"""The commands of `streamwell chat`, and texts of several lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from streamwell.cli.chat_commands import Commands, Conversation
from streamwell.cli.chat_input import ChatInput
from streamwell.core.errors import EngineDied, InvalidRequest


def commands(conversation: Conversation, answer: Callable[[], None] = lambda: None) -> Commands:
    return Commands(conversation, answer=answer, list_models=lambda: ["brooklet", "other"])


def talked() -> Conversation:
    conversation = Conversation(model="other", system="Be kind.")
    conversation.ask("Hello!")
    conversation.answered("Hi ✓")
    return conversation


def test_the_system_prompt_and_the_model_are_those_of_the_next_answer() -> None:
    """They are in the request, and can be taken back; an unknown model is refused with names."""
    conversation = Conversation()
    run = commands(conversation).run
    conversation.ask("Hello!")

    assert {"messages": [{"role": "user", "content": "Hello!"}]} == conversation.body()
    run("/system Be kind.")
    run("/model other")
    assert {"role": "system", "content": "Be kind."} == conversation.body()["messages"][0]
    assert "other" == conversation.body()["model"]
    assert "  brooklet\n* other" == run("/model")
    with pytest.raises(InvalidRequest, match="'gpt-7'; there are brooklet, other"):
        run("/model gpt-7")
    run("/system")
    assert 1 == len(conversation.body()["messages"])


def test_a_conversation_is_saved_and_loaded(tmp_path: Path) -> None:
    """What was said, to whom, and how; the file is readable by its owner only."""
    path, conversation = tmp_path / "talk.json", Conversation()

    assert "2 messages" in commands(talked()).run(f"/save {path}")
    assert 0o600 == path.stat().st_mode & 0o777
    assert "2 messages" in commands(conversation).run(f"/load {path}")
    assert talked() == conversation


def test_bytes_that_are_no_text_are_saved_as_question_marks(tmp_path: Path) -> None:
    """They were typed, and refused; what was said before is not lost for them."""
    path, conversation = tmp_path / "talk.json", talked()
    conversation.ask("no \udcff text")

    commands(conversation).run(f"/save {path}")
    assert "no ? text" == json.loads(path.read_text(encoding="utf-8"))["messages"][-1]["content"]


@pytest.mark.parametrize(
    "saved",
    [
        "{",
        "[]",
        "{}",
        json.dumps({"messages": [{"role": "tool", "content": "x"}]}),
        json.dumps({"messages": [{"role": "user", "content": 5}]}),
        json.dumps({"messages": [], "system": None}),
    ],
)
def test_what_is_no_conversation_changes_nothing(tmp_path: Path, saved: str) -> None:
    """It is refused by name, and what was said stays."""
    path, conversation = tmp_path / "talk.json", talked()
    path.write_text(saved, encoding="utf-8")

    with pytest.raises(InvalidRequest, match="no conversation that /save wrote"):
        commands(conversation).run(f"/load {path}")
    assert talked() == conversation


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/load", "/load wants the name of a file"),
        ("/load /no/such/file", "cannot read /no/such/file: No such file"),
        ("/save /no/such/file", "cannot write /no/such/file: No such file"),
        ("/frobnicate", "no command /frobnicate"),
    ],
)
def test_what_cannot_be_done_is_told(line: str, told: str) -> None:
    """In one line."""
    with pytest.raises(InvalidRequest, match=told):
        commands(talked()).run(line)


def test_another_answer_to_the_last_question() -> None:
    """The last answer is dropped before the next one is asked for; without a question: told."""
    conversation, asked = talked(), list[int]()
    run = commands(conversation, lambda: asked.append(len(conversation.messages))).run

    run("/retry")
    assert [1] == asked
    run("/clear")
    with pytest.raises(InvalidRequest, match="nothing was asked yet"):
        run("/retry")
    with pytest.raises(EOFError):
        run("/quit")


def test_a_question_without_an_answer_is_asked_again_or_replaced() -> None:
    """It stays for `/retry`; who says something else says that instead."""
    conversation = talked()
    conversation.ask("And now?")
    assert not conversation.is_answered

    commands(conversation, lambda: conversation.answered("Now.")).run("/retry")
    assert ["Hello!", "Hi ✓", "And now?", "Now."] == said(conversation)
    conversation.ask("Then?")
    conversation.ask("And then?")
    assert ["And then?"] == said(conversation)[4:]


def test_an_answer_is_kept_until_there_is_another_one() -> None:
    """Nothing is lost when no server answers a `/retry`."""

    def fail() -> None:
        raise EngineDied("gone")

    conversation = talked()
    with pytest.raises(EngineDied):
        commands(conversation, fail).run("/retry")

    assert talked() == conversation


def said(conversation: Conversation) -> list[str]:
    return [message["content"] for message in conversation.messages]


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["Hello!"], "Hello!"),
        (["Hello, \\", "you!"], "Hello, \nyou!"),
        (['"""', "def f():", "", "    pass", '"""'], "def f():\n\n    pass"),
        (['"""one', 'two"""'], "one\ntwo"),
        (['"""one"""'], "one"),
        (['"""', "// one", "two", '"""'], " // one\ntwo"),
    ],
)
def test_texts_may_have_several_lines(
    typed: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a backslash at the end, or between triple quotes; nothing else is read."""
    lines = iter(typed)
    monkeypatch.setattr("builtins.input", lambda _prompt: next(lines))

    assert text == ChatInput().read()
    assert [] == list(lines)


@pytest.mark.parametrize(
    ("typed", "text"), [(['"""', "a", "b"], "a\nb"), (["a\\"], "a\n"), (['"""'], "")]
)
def test_in_a_pipe_the_end_of_the_input_ends_a_text(
    typed: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was typed is not dropped; at a terminal, Ctrl-D leaves."""
    end = "\n".join(typed) + "\n"
    monkeypatch.setattr("sys.stdin", StringIO(end))
    said = ChatInput()

    assert text == said.read()
    with pytest.raises(EOFError):
        said.read()
    monkeypatch.setattr("sys.stdin", StringIO(end))
    said.is_terminal = True
    with pytest.raises(EOFError):
        said.read()
