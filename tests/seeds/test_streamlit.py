"""`examples/streamlit_chat.py` talks with a server, driven by Streamlit's own AppTest."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from streamlit.testing.v1 import AppTest

sys.path.append(str(Path(__file__).parents[1] / "e2e"))

from harness import DEADLINE_S, ServerProcess

EXAMPLE = Path(__file__).parents[2] / "examples" / "streamlit_chat.py"
LATENCY = r"\*\*Time latency for server \(End to End\) :\*\* [0-9]+\.[0-9]{2} seconds\."

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with closing(ServerProcess(tmp_path_factory.mktemp("server"), "--num-threads", "1")) as server:
        server.wait_until_ready()
        yield server


@pytest.fixture
def chat(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The page, opened."""
    monkeypatch.setenv("BASE_URL", f"{server.url}/v1")
    return AppTest.from_file(str(EXAMPLE), default_timeout=DEADLINE_S).run()


def _shown(chat: AppTest) -> list[tuple[str, list[str]]]:
    """Who said what, as the page shows it."""
    assert not chat.exception
    return [
        (message.name, [text.value for text in message.markdown]) for message in chat.chat_message
    ]


def test_req_16_the_loop_of_the_openai_client(server: ServerProcess) -> None:
    """`chunk.choices[0].delta.content or ""`, printed one after the other, is the whole answer."""
    messages = [{"role": "user", "content": "Hello!"}]
    body: dict[str, Any] = {"model": "brooklet", "messages": messages, "temperature": 0}
    with OpenAI(base_url=f"{server.url}/v1", api_key="-") as client:
        chunks = client.chat.completions.create(**body, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    assert text
    assert server.text(body, "/v1/chat/completions") == text


def test_req_21_the_page_chats(chat: AppTest) -> None:
    """It streams an answer, says how long it took, and keeps the conversation."""
    assert "Talk with brooklet" == chat.title[0].value
    assert "Hey there! Drop any question." == chat.chat_input[0].placeholder

    chat.chat_input[0].set_value("Hello!").run()

    (asker, question), (answerer, (answer, latency)) = _shown(chat)
    assert ("user", ["Hello!"], "assistant") == (asker, question, answerer)
    assert answer
    assert re.fullmatch(LATENCY, latency)
    expected = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": answer}]
    assert expected == chat.session_state["messages"]


def test_req_22_the_whole_conversation_is_sent(chat: AppTest, server: ServerProcess) -> None:
    """The second prompt comes with the first and its answer before it, and is shown below them."""
    before = server.metrics()["prompt_tokens_total"]
    chat.chat_input[0].set_value("My name is Ada.").run()
    first = server.metrics()["prompt_tokens_total"] - before
    chat.chat_input[0].set_value("Hello!").run()
    second = server.metrics()["prompt_tokens_total"] - before - first

    assert ["user", "assistant", "user", "assistant"] == [name for name, _ in _shown(chat)]
    assert second > first


def test_req_21_a_failure_is_shown(chat: AppTest) -> None:
    """What the server refuses is an error on the page, and no empty answer."""
    chat.chat_input[0].set_value("word " * 8000).run()

    assert "context" in chat.exception[0].message
