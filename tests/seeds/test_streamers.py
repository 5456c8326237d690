"""`AsyncStreamer`: a FastAPI application that is not ours streams Transformers' own `generate`."""

from __future__ import annotations

import asyncio
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
import torch
import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.append(str(Path(__file__).parents[1] / "e2e"))

from harness import HOST, eventually

from streamwell.models import brooklet_path
from streamwell.streamers import AsyncStreamer, ReadersLeft, _eos_ids, stream

EXAMPLES = Path(__file__).parents[2] / "examples"
NUM_LONG = 1500
LONG = {"min_new_tokens": NUM_LONG, "max_new_tokens": NUM_LONG, "do_sample": False}
SHORT = {"max_new_tokens": 12, "do_sample": False}


def test_words_of_a_tokenizer_that_strips_stay_apart() -> None:
    """Marian's, for one, which is no fast one: a space may be a token of its own."""
    pieces = ["\N{LOWER ONE EIGHTH BLOCK}", "\N{LOWER ONE EIGHTH BLOCK}Hello", "42", "x"]

    class Stripping:
        is_fast = False

        def get_vocab(self) -> dict[str, int]:
            return {piece: at for at, piece in enumerate(pieces)}

        def encode(self, _text: str, **_: object) -> list[int]:
            return [1]

        def decode(self, ids: Sequence[int], **_: object) -> str:
            return "".join(pieces[at] for at in ids).replace(pieces[0], " ").strip()

    async def read() -> list[str]:
        streamer = AsyncStreamer(Stripping())  # type: ignore[arg-type]
        for value in ([[3]], [1], [0], [2]):
            streamer.put(torch.tensor(value))
        streamer.end()
        return [text async for text in streamer]

    assert "Hello 42" == "".join(asyncio.run(read())).strip()


class Chat:
    """A model, its tokenizer, and what they say without a streamer."""

    def __init__(self) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(brooklet_path())
        self.tokenizer = AutoTokenizer.from_pretrained(brooklet_path(), padding_side="left")
        #: Steps that long generations took.
        self.num_long_steps = 0

    def inputs(self, *queries: str) -> dict[str, torch.Tensor]:
        chats = [[{"role": "user", "content": query}] for query in queries]
        options = {"add_generation_prompt": True, "return_dict": True, "return_tensors": "pt"}
        return dict(self.tokenizer.apply_chat_template(chats, padding=True, **options))

    def long(self, *queries: str) -> dict[str, Any]:
        """Options of a generation that only its readers end."""

        def count(ids: torch.Tensor, _scores: object) -> torch.Tensor:
            self.num_long_steps += 1
            return torch.zeros(len(ids), dtype=torch.bool)

        self.num_long_steps = 0
        return self.inputs(*queries) | LONG | {"stopping_criteria": [count]}

    def text(self, query: str) -> str:
        inputs = self.inputs(query)
        ids = self.model.generate(**inputs, **SHORT)[0, inputs["input_ids"].shape[1] :]
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))


@pytest.fixture(scope="module")
def chat() -> Iterator[Chat]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # many streams on few cores: threads of each would wait for others'
    yield Chat()
    torch.set_num_threads(num_threads)


def own_app(chat: Chat) -> FastAPI:
    """What a user of the streamer writes."""
    app = FastAPI()

    @app.get("/short")
    async def short(query: str) -> StreamingResponse:
        return StreamingResponse(stream(chat.model, chat.tokenizer, **chat.inputs(query), **SHORT))

    @app.get("/long")
    async def long(query: str) -> StreamingResponse:
        return StreamingResponse(stream(chat.model, chat.tokenizer, **chat.long(query)))

    @app.get("/failing")
    async def failing(query: str) -> StreamingResponse:
        async def events() -> AsyncIterator[str]:
            try:
                criteria = {"stopping_criteria": [_fail_after_three()]}
                options = chat.inputs(query) | LONG | criteria
                async for text in stream(chat.model, chat.tokenizer, **options):
                    yield f"data: {text}\n\n"
            except ZeroDivisionError as error:
                yield f"event: error\ndata: {error}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    return app


def _fail_after_three() -> Any:  # noqa: ANN401 - a stopping criterion
    steps = iter([1, 1, 1])

    def criterion(ids: torch.Tensor, _scores: object) -> torch.Tensor:
        return torch.full((len(ids),), 1 / next(steps, 0) < 0)

    return criterion


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The URL of an application under uvicorn."""
    listener = socket.create_server((HOST, 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://{HOST}:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()


@pytest.fixture(scope="module")
def url(chat: Chat) -> Iterator[str]:
    with served(own_app(chat)) as url:
        yield url


def _num_generating() -> int:
    return sum(thread.name == "generate" for thread in threading.enumerate())


def _all_ended() -> None:
    eventually(lambda: _num_generating() == 0, "no thread generates")


def _texts_at_once(url: str, queries: Sequence[str]) -> list[str]:
    async def texts() -> list[str]:
        async with httpx2.AsyncClient(timeout=120, verify=False) as client:
            requests = [client.get(url, params={"query": query}) for query in queries]
            return [response.text for response in await asyncio.gather(*requests)]

    return asyncio.run(texts())


@pytest.mark.slow
def test_req_03_sixteen_streams_each_get_their_own_text(chat: Chat, url: str) -> None:
    """Sixteen readers at once each get what their prompt alone gives, and no other text."""
    queries = [f"Count from {n} to {n + 3}." for n in range(16)]

    assert [chat.text(query) for query in queries] == _texts_at_once(f"{url}/short", queries)
    _all_ended()


@pytest.mark.slow
def test_req_08_a_reader_that_leaves_ends_its_generation(chat: Chat, url: str) -> None:
    """The thread of a generation ends soon after its client has closed the connection."""
    with httpx2.stream("GET", f"{url}/long?query=Hello!", timeout=60) as response:
        next(response.iter_text())
        assert 1 == _num_generating()
    _all_ended()
    assert chat.num_long_steps < NUM_LONG


@pytest.mark.slow
def test_req_09_a_generation_that_fails_ends_its_stream(url: str) -> None:
    """The reader gets the text before the failure, then the failure; nothing waits for ever."""
    response = httpx2.get(f"{url}/failing?query=Hello!", timeout=60)

    assert 3 == response.text.count("data: ") - 1
    assert response.text.endswith("event: error\ndata: division by zero\n\n")
    _all_ended()


@pytest.mark.slow
def test_req_25_rows_of_a_batch_end_apart(chat: Chat) -> None:
    """Each row has its own text and ends with its own last token, while others go on."""
    queries = ["Count from 1 to 2.", "Count from 1 to 9."]

    async def read() -> tuple[list[str], bool]:
        streamer = AsyncStreamer(chat.tokenizer, num_rows=2)
        options = SHORT | {"max_new_tokens": 40}
        streamer.start(chat.model, **chat.inputs(*queries), **options)
        short, long = (asyncio.create_task(_joined(row)) for row in streamer.rows)
        done, _ = await asyncio.wait({short, long}, return_when=asyncio.FIRST_COMPLETED)
        return [await short, await long], done == {short}

    texts, is_short_first = asyncio.run(read())

    assert chat.text(queries[0]) == texts[0]
    assert texts[1].startswith(chat.text(queries[1]))
    assert is_short_first
    _all_ended()


@pytest.mark.slow
def test_a_batch_ends_when_all_its_readers_have_left(chat: Chat) -> None:
    """One reader of two may leave; when both have, generation ends."""

    async def read() -> None:
        streamer = AsyncStreamer(chat.tokenizer, num_rows=2)
        streamer.start(chat.model, **chat.long("Hello!", "Who are you?"))
        async with aclosing(aiter(streamer.rows[1])) as staying:
            async with aclosing(aiter(streamer.rows[0])) as leaving:
                await anext(leaving)
            for _ in range(5):
                await anext(staying)
            assert 1 == _num_generating()

    asyncio.run(read())
    _all_ended()
    assert chat.num_long_steps < NUM_LONG


@pytest.mark.slow
def test_req_06_the_example_streams(chat: Chat) -> None:
    """`examples/own_fastapi_app.py` runs under uvicorn, has at most 30 lines, and answers."""
    path = EXAMPLES / "own_fastapi_app.py"

    assert 30 >= len(path.read_text(encoding="utf-8").splitlines())
    with served(runpy.run_path(str(path))["app"]) as url:
        response = httpx2.get(f"{url}/query-stream/?query=Hello!", timeout=60)
    assert 200 == response.status_code
    assert response.text.strip()


async def _joined(texts: AsyncIterator[str]) -> str:
    return "".join([text async for text in texts])


class Bytes:
    """A tokenizer of bytes, and a model that says what it is told to."""

    generation_config = SimpleNamespace(eos_token_id=None)

    def __init__(self, text: str) -> None:
        self.ids = list(text.encode())

    def decode(self, ids: list[int], **_options: object) -> str:
        return bytes(ids).decode(errors="replace")

    def generate(self, streamer: AsyncStreamer) -> None:
        streamer.put(torch.tensor([[1, 2, 3]]))
        for token_id in self.ids:
            streamer.put(torch.tensor([token_id]))
        streamer.end()


def test_req_07_texts_are_whole_characters_and_deltas() -> None:
    """No text has part of a character, none is repeated, and the prompt is left out."""
    told = "Grüße, 世界 🙂!\n"
    model: Any = Bytes(told)

    async def read() -> list[str]:
        return [text async for text in stream(model, model)]

    texts = asyncio.run(read())

    assert told == "".join(texts)
    assert "\N{REPLACEMENT CHARACTER}" not in "|".join(texts)


def test_a_row_ends_by_the_models_own_config_where_anothers_says_nothing() -> None:
    """As `generate` takes it: an end that is switched off is switched off."""
    model: Any = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=[2, 3]))
    silent = SimpleNamespace(eos_token_id=None)

    assert {2, 3} == _eos_ids(model, {"generation_config": silent})
    assert {5} == _eos_ids(model, {"generation_config": SimpleNamespace(eos_token_id=5)})
    assert not _eos_ids(model, {"generation_config": silent, "eos_token_id": None})


def test_req_09_a_streamer_is_for_one_generation() -> None:
    """A second generation is refused: there is no stream that two requests share."""

    async def use_twice() -> None:
        model: Any = Bytes("one")
        streamer = AsyncStreamer(model)
        model.generate(streamer)
        assert "one" == await _joined(aiter(streamer))
        with pytest.raises(RuntimeError, match="one generation"):
            model.generate(streamer)

    asyncio.run(use_twice())


def test_nothing_is_computed_for_who_has_left_before() -> None:
    """`put` raises when it gets the prompt, which is before the model sees it."""

    async def leave() -> None:
        model: Any = Bytes("text")
        streamer = AsyncStreamer(model)
        streamer.rows[0].close()
        with pytest.raises(ReadersLeft):
            streamer.put(torch.tensor([[1, 2, 3]]))

    asyncio.run(leave())


def test_a_generation_outlives_no_event_loop() -> None:
    """When the reader's event loop is gone, `put` ends the generation."""

    async def make(model: Any) -> AsyncStreamer:  # noqa: ANN401 - a fake
        return AsyncStreamer(model)

    model: Any = Bytes("text")
    streamer = asyncio.run(make(model))

    with pytest.raises(ReadersLeft):
        model.generate(streamer)


def test_a_batch_of_another_size_is_refused() -> None:
    """The reader of a streamer for two rows is told that the batch has one."""

    async def read() -> None:
        model: Any = Bytes("text")
        streamer = AsyncStreamer(model, num_rows=2)
        streamer.start(model)
        with pytest.raises(ValueError, match="1 rows, not 2"):
            await _joined(aiter(streamer.rows[1]))

    asyncio.run(read())


def test_importing_it_brings_no_server() -> None:
    """Somebody else's application gets neither our server nor its dependencies, nor torch early."""
    unwanted = (
        "torch",
        "fastapi",
        "uvicorn",
        "sqlalchemy",
        "streamwell.server",
        "streamwell.engine",
    )
    script = f"import sys, streamwell.streamers; print([m for m in {unwanted} if m in sys.modules])"

    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert "[]" == answer.stdout.strip()
