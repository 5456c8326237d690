"""The model in the box answers."""

from __future__ import annotations

import pytest
from harness import ServerProcess

pytestmark = pytest.mark.slow


def test_a_greeting_gets_an_answer_that_ends(brooklet: ServerProcess) -> None:
    """With no options at all, a greeting is answered with some text, which the model ends."""
    body = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 400}
    choice = brooklet.post("/v1/chat/completions", body).json()["choices"][0]

    assert "stop" == choice["finish_reason"]
    assert choice["message"]["content"].strip()


def test_a_streamed_greeting_gets_an_answer_that_ends(brooklet: ServerProcess) -> None:
    """The same as a stream: text in several pieces, then the reason."""
    body = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 400}
    with brooklet.stream(body, "/v1/chat/completions") as stream:
        frames = list(stream)

    assert "stop" == frames[-2].finish_reason
    assert len([frame for frame in frames if frame.text]) > 1
