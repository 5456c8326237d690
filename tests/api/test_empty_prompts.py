"""A prompt without tokens is refused; whether it has any, the tokenizer decides."""

from __future__ import annotations

from typing import Any

import pytest
from http_rig import call, error, ok
from rig import Letters, Rig, run
from socket_rig import connected

pytestmark = pytest.mark.timeout(30)

FEW = {"max_tokens": 2, "seed": 1}
TEXTS: list[Any] = ["", [""], ["ab", ""]]


class Marked(Letters):
    """A tokenizer that begins every text with a token of its own."""

    def encode_text(self, text: str) -> list[int]:
        return [1, *super().encode_text(text)]


@pytest.mark.parametrize("prompt", [*TEXTS, [], [[]], [[97], []]])
def test_a_completion_of_nothing_is_refused(prompt: object) -> None:
    """400 with the field, and nothing is generated."""

    async def test(rig: Rig) -> None:
        body = {"prompt": prompt, **FEW}
        assert (400, "prompt", None) == await error(rig, "POST", "/v1/completions", body)
        assert not rig.store.unended

    run(test)


@pytest.mark.parametrize(("prompt", "num_tokens"), [*zip(TEXTS, (1, 1, 4), strict=True)])
def test_a_tokenizer_may_begin_every_text(prompt: object, num_tokens: int) -> None:
    """Then an empty text is a prompt like any other; an empty list of ids still is none."""

    async def test(rig: Rig) -> None:
        rig.services.models.models[0]._encoder = Marked()
        rig.engine.allow(4)
        answer = await ok(rig, "POST", "/v1/completions", {"prompt": prompt, **FEW})
        assert num_tokens == answer["usage"]["prompt_tokens"]
        body = {"prompt": [[]], **FEW}
        assert (400, "prompt", None) == await error(rig, "POST", "/v1/completions", body)

    run(test)


@pytest.mark.parametrize("raw", [True, False])
def test_a_run_of_nothing_is_refused(raw: bool) -> None:
    """On every road that starts one, be the prompt a text or a user's message."""

    async def test(rig: Rig) -> None:
        body = {"prompt": "", "raw": raw, **FEW}
        assert (400, "prompt", None) == await error(rig, "POST", "/v1/runs", body)
        query = body | {"raw": str(raw).lower()}
        assert (400, "prompt", None) == await error(rig, "GET", "/v1/stream", query=query)
        async with connected(rig) as client:
            client.say(type="prompt", **body)
            assert "prompt" == (await client.until_frames(1, "error"))[0]["error"]["param"]
        assert not rig.store.unended

    run(test)


@pytest.mark.parametrize(
    ("path", "fields", "continues_text"),
    [
        ("/v1/completions", {"prompt": "a"}, True),
        ("/v1/runs", {"prompt": "a", "raw": True}, True),
        ("/v1/runs", {"prompt": "a"}, False),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, False),
    ],
)
def test_only_a_bare_text_is_continued(
    path: str, fields: dict[str, object], continues_text: bool
) -> None:
    """Its answer keeps the space before a first word; a reply begins a text of its own."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(4)
        answer = await call(rig, "POST", path, fields | FEW | {"store": True})
        spec = await rig.store.run(answer.json["id"])

        assert spec is not None
        assert continues_text is spec.continues_text

    run(test)


def test_a_list_in_a_url_may_have_one_value() -> None:
    """A name that comes once is a list of one where the field is a list."""

    async def test(rig: Rig) -> None:
        rig.engine.allow(6)
        for ids in (["99"], ["99", "98"]):
            query = {"prompt": "a", "stop_token_ids": ids, **FEW}
            assert 200 == (await call(rig, "GET", "/v1/stream", query=query)).status
        query = {"prompt": "a", "stop_token_ids": "b", **FEW}
        refusal = await error(rig, "GET", "/v1/stream", query=query)
        assert (400, "stop_token_ids.0") == refusal[:2]

    run(test)


def test_a_raw_run_of_nothing_depends_on_the_tokenizer() -> None:
    """One that begins every text makes a prompt of it."""

    async def test(rig: Rig) -> None:
        rig.services.models.models[0]._encoder = Marked()
        rig.engine.allow(2)
        query = {"prompt": "", "raw": "true", **FEW}
        assert 200 == (await call(rig, "GET", "/v1/stream", query=query)).status

    run(test)
