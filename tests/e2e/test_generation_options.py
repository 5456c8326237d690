"""What a request may ask of a generation, through HTTP and down to a real model.

Greedy and with strong biases, a model has no choice: `forced` writes any short text with it.
"""

from __future__ import annotations

from typing import Any

import pytest
from harness import ServerProcess, StartServer
from tokenizers import Tokenizer

from streamwell.models import brooklet_path

pytestmark = pytest.mark.slow

TOKENIZER = Tokenizer.from_file(str(brooklet_path() / "tokenizer.json"))
EOS_ID = TOKENIZER.token_to_id("<|im_end|>")
MELODY = "\N{MUSICAL SYMBOL G CLEF}"  # four bytes, which no vocabulary this small has as one


def ids_of(text: str) -> list[int]:
    ids: list[int] = TOKENIZER.encode(text, add_special_tokens=False).ids
    return ids


def forced(token_ids: list[int]) -> dict[str, Any]:
    """Options under which exactly these tokens are generated, in this order.

    The earlier, the stronger the bias; what was written loses nine tenths of it.
    """
    assert len(set(token_ids)) == len(token_ids) <= 4
    biases = {str(token_id): 100 - 20 * rank for rank, token_id in enumerate(token_ids)}
    return {
        "prompt": "Hello",
        "logit_bias": biases,
        "repetition_penalty": 10,
        "temperature": 0,
        "max_tokens": len(token_ids),
    }


def _choice(server: ServerProcess, body: dict[str, Any]) -> dict[str, Any]:
    response = server.post("/v1/completions", body)
    assert 200 == response.status_code, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice | {"usage": response.json()["usage"]}


def _streamed(server: ServerProcess, body: dict[str, Any]) -> list[str]:
    with server.stream(body) as stream:
        return [frame.text for frame in stream if frame.text]


def test_logit_bias_forces_a_token(brooklet: ServerProcess) -> None:
    """A token with the strongest bias is all that is generated; a forbidden one never is."""
    (letter,) = ids_of("x")
    body = {"prompt": "Hello", "temperature": 0, "max_tokens": 5}
    forced_text = brooklet.text(body | {"logit_bias": {str(letter): 100}})
    first_id = ids_of(brooklet.text(body | {"max_tokens": 1, "ignore_eos": True}))[0]
    other = brooklet.text(body | {"max_tokens": 1, "logit_bias": {str(first_id): -100}})

    assert "xxxxx" == forced_text
    assert first_id not in ids_of(other)


def test_max_tokens_is_exact(brooklet: ServerProcess) -> None:
    """Neither more nor less, and the reason is `length`."""
    choice = _choice(brooklet, {"prompt": "Hello", "max_tokens": 7, "ignore_eos": True})

    assert ("length", 7) == (choice["finish_reason"], choice["usage"]["completion_tokens"])


def test_the_model_ends_its_answer(brooklet: ServerProcess) -> None:
    """The end token is counted, never shown, and gives the reason `stop`."""
    body = {"prompt": "Hello", "logit_bias": {str(EOS_ID): 100}, "temperature": 0, "max_tokens": 9}
    choice = _choice(brooklet, body)

    assert ("", "stop") == (choice["text"], choice["finish_reason"])
    assert 1 == choice["usage"]["completion_tokens"]


def test_ignore_eos_goes_on(brooklet: ServerProcess) -> None:
    """With `ignore_eos` the end token neither ends the answer nor is seen in it."""
    body = {"prompt": "Hello", "logit_bias": {str(EOS_ID): 100}, "temperature": 0, "max_tokens": 9}
    choice = _choice(brooklet, body | {"ignore_eos": True})

    assert ("", "length") == (choice["text"], choice["finish_reason"])
    assert 9 == choice["usage"]["completion_tokens"]


def test_min_tokens_keeps_the_end_away(brooklet: ServerProcess) -> None:
    """The end token cannot come before so many others, and comes right after them here."""
    body = {"prompt": "Hello", "logit_bias": {str(EOS_ID): 100}, "temperature": 0, "max_tokens": 9}
    choice = _choice(brooklet, body | {"min_tokens": 5})

    assert "stop" == choice["finish_reason"]
    assert 6 == choice["usage"]["completion_tokens"]
    assert choice["text"]


def test_stop_token_ids_end_the_answer(brooklet: ServerProcess) -> None:
    """A caller's own end token works like the model's."""
    (first,), (second,) = ids_of("x"), ids_of("y")
    body = forced([first, second]) | {"max_tokens": 9, "stop_token_ids": [second]}
    choice = _choice(brooklet, body)

    assert ("stop", 2) == (choice["finish_reason"], choice["usage"]["completion_tokens"])


@pytest.mark.parametrize(
    ("stop", "text", "num_tokens"),
    [
        ("y", "x", 2),
        (["q", "yz"], "x", 3),  # over two tokens
        (["yz", "z"], "x", 3),  # both are complete at the same character: the longer one counts
        (["y?", "zw"], "xy", 4),  # "y" was held back, and released
        ("zw!", "xyzw", 4),  # never completed: the held tail is flushed
    ],
)
def test_stop_strings(
    brooklet: ServerProcess, stop: str | list[str], text: str, num_tokens: int
) -> None:
    """A stop string ends the text before it, also over several tokens; whole and streamed alike."""
    ids = [token_id for letter in "xyzw" for token_id in ids_of(letter)]
    body = forced(ids) | {"stop": stop}
    choice = _choice(brooklet, body)

    assert text == choice["text"]
    assert ("stop" if text != "xyzw" else "length") == choice["finish_reason"]
    assert num_tokens == choice["usage"]["completion_tokens"]
    assert text == "".join(_streamed(brooklet, body))


def test_a_character_of_four_tokens_streams_whole(brooklet: ServerProcess) -> None:
    """Bytes of one character over four tokens arrive as one delta, never as pieces."""
    ids = ids_of(MELODY)
    assert 4 == len(ids)

    assert [MELODY] == _streamed(brooklet, forced(ids))
    assert MELODY == brooklet.text(forced(ids))


def test_an_unfinished_character_is_not_lost(brooklet: ServerProcess) -> None:
    """If the limit cuts a character, what there is of it is shown, the same in both modes."""
    body = forced(ids_of(MELODY)) | {"max_tokens": 2}
    text = brooklet.text(body)

    assert {"\N{REPLACEMENT CHARACTER}"} == set(text)
    assert text == "".join(_streamed(brooklet, body))


def test_choices_of_one_request_differ(brooklet: ServerProcess) -> None:
    """`n` choices have random numbers of their own; the first one is that of `n` = 1."""
    body = {"prompt": "Once upon a time", "temperature": 1, "seed": 7, "max_tokens": 20}
    choices = brooklet.post("/v1/completions", body | {"n": 2}).json()["choices"]

    assert [0, 1] == [choice["index"] for choice in choices]
    assert choices[0]["text"] != choices[1]["text"]
    assert brooklet.text(body) == choices[0]["text"]


def test_a_seed_is_a_text(brooklet: ServerProcess) -> None:
    """The same seed gives the same text, other seeds others; without one, every time another."""
    body = {"prompt": "Once upon a time", "temperature": 1, "max_tokens": 20}

    assert brooklet.text(body | {"seed": 7}) == brooklet.text(body | {"seed": 7})
    assert 4 == len({brooklet.text(body | {"seed": seed}) for seed in (1, 2, -1, 2**63 - 1)})
    assert 4 == len({brooklet.text(body) for _ in range(4)})


def test_top_k_of_one_is_greedy(brooklet: ServerProcess) -> None:
    """However hot, one candidate is no choice; so with a tiny `top_p`, and `min_p` of 1."""
    body = {"prompt": "Once upon a time", "temperature": 2, "max_tokens": 12, "seed": 3}
    greedy = brooklet.text(body | {"temperature": 0})

    for cut in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1}):
        assert greedy == brooklet.text(body | cut)


def test_a_list_of_prompts_is_answered_in_order(brooklet: ServerProcess) -> None:
    """Each prompt, as text or as ids, has the answer that it has alone."""
    options = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}
    texts = ["Once upon a time", "Hello", "The mill"]
    alone = [brooklet.text(options | {"prompt": text}) for text in texts]
    together = brooklet.post("/v1/completions", options | {"prompt": texts}).json()
    as_ids = options | {"prompt": [ids_of(text) for text in texts]}

    assert alone == [choice["text"] for choice in together["choices"]]
    assert 24 == together["usage"]["completion_tokens"]
    assert sum(len(ids_of(text)) for text in texts) == together["usage"]["prompt_tokens"]
    assert together["choices"] == brooklet.post("/v1/completions", as_ids).json()["choices"]
    assert alone[0] == brooklet.text(options | {"prompt": ids_of(texts[0])})


def test_prompts_times_n(brooklet: ServerProcess) -> None:
    """Two prompts with two choices each are four choices, prompt by prompt."""
    (letter,) = ids_of("x")
    options = {"temperature": 0, "max_tokens": 3, "logit_bias": {str(letter): 100}}
    body = options | {"prompt": ["Hello", "Once"], "n": 2}
    choices = brooklet.post("/v1/completions", body).json()["choices"]

    assert [(index, "xxx") for index in range(4)] == [(c["index"], c["text"]) for c in choices]


def test_a_prompt_may_fill_the_context_but_for_one_token(brooklet: ServerProcess) -> None:
    """The longest prompt gets one token and the reason `length`, whatever was asked."""
    limit = brooklet.client.get("/v1/models").json()["data"][0]["max_model_len"]
    body = {"prompt": ids_of("x") * (limit - 1), "max_tokens": 50, "ignore_eos": True}
    choice = _choice(brooklet, body)

    assert ("length", 1) == (choice["finish_reason"], choice["usage"]["completion_tokens"])


def test_control_tokens_in_messages_are_plain_text(brooklet: ServerProcess) -> None:
    """A user cannot end their turn by writing the model's control tokens."""
    path = "/v1/chat/completions"
    usages = []
    for content in ("a<|im_end|>b", "a b"):
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
        usages.append(brooklet.post(path, body).json()["usage"]["prompt_tokens"])

    assert usages[0] > usages[1] + 3


def _check_guesses(server: ServerProcess, plain: ServerProcess) -> None:
    """A server that guesses says the same as one that does not; some guesses are right."""
    words = {str(token_id): 100 for text in ("x", "y") for token_id in ids_of(text)}
    bodies: list[dict[str, Any]] = [
        {"prompt": "Hello", "temperature": temperature, "seed": 3, "max_tokens": 40} | more
        for temperature in (0, 1)
        for more in ({}, {"logit_bias": words}, {"presence_penalty": 1})
    ]

    assert [plain.text(body) for body in bodies] == [server.text(body) for body in bodies]
    metrics = server.metrics()
    assert 0 < metrics["spec_decode_accepted_tokens_total"]
    assert metrics["spec_decode_accepted_tokens_total"] <= metrics["spec_decode_draft_tokens_total"]


def test_prompt_lookup_changes_no_answer(brooklet: ServerProcess, guessing: ServerProcess) -> None:
    """Guesses change how many steps an answer takes, and no answer."""
    _check_guesses(guessing, brooklet)


def test_a_draft_model_changes_no_answer(
    brooklet: ServerProcess, start_server: StartServer
) -> None:
    """The same of those that another model makes."""
    server = start_server("--speculative-model", "brooklet")
    server.wait_until_ready()

    _check_guesses(server, brooklet)
