"""Answers on a terminal: markdown that grows, and nothing that controls the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from streamwell.cli.chat_output import _MarkdownWriter, answer_writer, split_whole


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("a word", ""),
        ("one\n\ntwo", "one\n\n"),
        ("one\n\ntwo\n\n", "one\n\ntwo\n\n"),
        ("```\ncode\n\nmore", ""),
        ("```\ncode\n\n```\n\nthen", "```\ncode\n\n```\n\n"),
        ("~~~\n```\n\n~~~\n\nthen", "~~~\n```\n\n~~~\n\n"),
    ],
)
def test_blocks_are_whole_at_an_empty_line(text: str, whole: str) -> None:
    """But not within a fence; nothing is lost."""
    assert (whole, text[len(whole) :]) == split_whole(text)


def screen_of(*pieces: str) -> str:
    """What a terminal gets."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=40, height=10, _environ={})
    with answer_writer(console) as writer:
        for piece in pieces:
            writer.write(piece)
            if isinstance(writer, _MarkdownWriter):
                writer._live.refresh()  # as time does
    return file.getvalue()


def test_markdown_is_drawn_on_a_terminal() -> None:
    """Whole blocks and the last one; marks are no words any more."""
    shown = screen_of("some **bo", "ld** word\n\n", "and the end")

    assert "\x1b[1mbold\x1b[0m" in shown
    assert "**" not in shown.split("bold\x1b[0m")[-1]
    assert shown.rstrip().endswith("and the end")


@pytest.mark.parametrize(
    "text",
    ["a vector<int> of <b>these</b>", "<p>\nshown\n</p>", "[1]: http://one", "![x](http://two)"],
)
def test_nothing_that_a_model_says_is_hidden(text: str) -> None:
    """Tags, references and addresses are words like others."""
    shown = screen_of(text)

    assert all(word in shown for word in text.replace("![x](", "x ").rstrip(")").split())


def test_lines_and_addresses_are_shown() -> None:
    """A poem keeps its lines, and a link says where it leads, without an escape of the terminal."""
    shown = screen_of("Roses are red,\nviolets [blue](http://blue)")

    assert "red,\n" in shown.replace(" ", "")
    assert "blue" in shown
    assert "http://blue" in shown
    assert "\x1b]8" not in shown


def test_a_model_cannot_control_the_terminal() -> None:
    """Escapes of its own are shown as signs, also if they come in pieces."""
    shown = screen_of("a\x1b", "[31mred\x9b2J\x07 &#27;[32m &#155;")

    assert "\x1b[31m" not in shown
    assert "\x1b[32m" not in shown
    assert "\x9b" not in shown
    assert "\x07" not in shown
    assert "␛[31mred" in shown


def test_a_pipe_gets_the_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Every character, as it comes."""
    with answer_writer(Console(file=io.StringIO(), force_terminal=False)) as writer:
        writer.write("some **bo")
        writer.write("ld**\x1b")

    assert "some **bold**\x1b" == capsys.readouterr().out
