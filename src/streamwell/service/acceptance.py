"""From a parsed request to an accepted run: ids, and complete sampling parameters."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from streamwell.core.engine_state import EngineInfo
from streamwell.core.errors import ContextLengthExceeded, InvalidRequest
from streamwell.core.messages import PartKind, num_kept_bytes, refuse_surrogates
from streamwell.core.types import (
    GenerateRequest,
    Message,
    Prompt,
    RunKind,
    RunRequest,
    RunSpec,
    SamplingParams,
)
from streamwell.service.models import Served
from streamwell.service.new_ids import id_by_time
from streamwell.service.served_model import Encoder
from streamwell.service.truncation import (
    EncodeChat,
    EncodeText,
    last_of_chat,
    last_of_ids,
    last_of_text,
)

#: What the completions API generates when the request is silent, as OpenAI's does.
DEFAULT_COMPLETION_TOKENS = 16
#: Where a prompt is truncated and nothing is said of its answer, so many tokens are for that.
_ROOM_FOR_ANSWER = 256
#: Of messages that a run keeps, what came before them included; lists read those of many runs.
MAX_KEPT_BYTES = 2 << 20
#: A text of more characters than this per token of context is probed before all of it is encoded.
_BEGINNING_CHARS_PER_TOKEN = 16


async def accept(request: RunRequest, model: Served) -> RunSpec:
    """Check and encode a request; encoding runs in a worker thread.

    A model that went because nobody used it is loaded first.

    Raises:
        InvalidRequest: names the field that is wrong.
        ModelLoading, ModelUnloaded, EngineUnavailable, LoadError: the model is not up.
    """
    if num_kept_bytes(request.terms.messages) > MAX_KEPT_BYTES:
        raise InvalidRequest(
            f"over {MAX_KEPT_BYTES} bytes of messages would be kept with the answer",
            request.prompt_param,
        )
    await model.wake()
    encoder, info = model.require()
    prompts = await asyncio.to_thread(_encode_all, encoder, request, info)
    return RunSpec(
        run_id=id_by_time(request.kind.id_prefix),
        kind=request.kind,
        tenant=request.tenant,
        model=request.model or model.names[0],
        created_s=int(time.time()),
        prompts=prompts,
        num_choices=request.num_choices,
        sampling=_sampling(request, model, info),
        stop=request.stop,
        priority=request.priority,
        terms=request.terms,
        part_kinds=_part_kinds(request),
        continues_text=_continues_text(request, info),
    )


def _continues_text(request: RunRequest, info: EngineInfo) -> bool:
    """Of a conversation a template makes a prompt that ends where a reply begins."""
    items = (item for prompt in request.prompts for item in prompt)
    return not info.is_encoder_decoder and not any(isinstance(item, Message) for item in items)


def _part_kinds(request: RunRequest) -> tuple[PartKind, ...]:
    """Only chats have parts; without tools, what looks like a call of one is text."""
    if request.kind is not RunKind.CHAT:
        return ()
    calls = (PartKind.TOOL_CALL,) if request.chat.tools else ()
    return (PartKind.REASONING, *calls)


def engine_request(spec: RunSpec, index: int, info: EngineInfo) -> GenerateRequest:
    """What the engine is asked for choice `index` of a run; each choice has a seed of its own."""
    prompt_ids = spec.prompts[index // spec.num_choices]
    sampling = replace(
        spec.sampling,
        seed=spec.sampling.seed + index,
        max_tokens=min(spec.sampling.max_tokens, info.max_new_tokens(len(prompt_ids))),
    )
    return GenerateRequest(
        request_id=f"{spec.run_id}/{index}",
        prompt_ids=prompt_ids,
        sampling=sampling,
        priority=spec.priority,
        cache_salt=spec.tenant,  # else a quick first token would tell of another's prompt
    )


def _encode_all(
    encoder: Encoder, request: RunRequest, info: EngineInfo
) -> tuple[tuple[int, ...], ...]:
    """Encode and check; what is far too long is refused before much work is done for it."""
    param = request.prompt_param
    given = request.prompts
    _refuse_surrogates(given, param)
    if not encoder.has_chat_template:
        given = _without_template(request, info)
    for prompt in given if request.truncate is None else ():
        _check_prompt(_beginning(encoder, prompt, info), info, param, "at least ")
    _check_ids(request, info)

    def encode_text(text: str) -> list[int]:
        ids = encoder.encode_text(text)
        return _without_second_end(encoder, ids) if info.is_encoder_decoder else ids

    def encode_chat(messages: Sequence[Message]) -> list[int]:
        try:
            return encoder.encode_chat(messages, request.chat)
        except InvalidRequest as error:
            error.param = param if error.param == "messages" else error.param
            raise

    prompts = tuple(
        tuple(_encode(encode_text, encode_chat, prompt, _limit(request, info))) for prompt in given
    )
    for ids in prompts:
        _check_prompt(ids, info, param)
        _check_fit(ids, info, param)
    return prompts


def _refuse_surrogates(prompts: Sequence[Prompt], param: str) -> None:
    """Also of messages that this model will not read: all are kept with their run."""
    for prompt in prompts:
        for at, item in enumerate(() if isinstance(prompt, str) else prompt):
            if isinstance(item, Message):
                place = param if param == "prompt" else f"{param}.{at}.content"
                refuse_surrogates(item.content, place)


def _without_template(request: RunRequest, info: EngineInfo) -> tuple[Prompt, ...]:
    """What a model reads for which nobody says what a conversation looks like."""
    chat, given = request.chat, request.prompts
    for name, value in (("tools", chat.tools), ("chat_template_kwargs", chat.template_kwargs)):
        if value:
            raise InvalidRequest("this model has no chat template to show them to it", name)
    if info.is_encoder_decoder:
        return tuple(_input_of(prompt, request.prompt_param) for prompt in given)
    return tuple(map(_joined, given)) if request.joins_messages else given


def _input_of(prompt: Prompt, param: str) -> Prompt:
    """What an encoder reads of a conversation, if no template says so: the last user message."""
    messages = [item for item in prompt if isinstance(item, Message)]
    if not messages:
        return prompt
    inputs = [message.content for message in messages if message.role == "user"]
    if not inputs:
        raise InvalidRequest("this model reads the last user message, and there is none", param)
    return inputs[-1]


def _joined(prompt: Prompt) -> Prompt:
    """A conversation as the text that it makes, one message after the other."""
    messages = [item for item in prompt if isinstance(item, Message)]
    return "".join(message.content for message in messages) if messages else prompt


def _beginning(encoder: Encoder, prompt: Prompt, info: EngineInfo) -> Sequence[int]:
    """The ids of a long text's beginning: if these are too many, so are those of all of it."""
    limit = _BEGINNING_CHARS_PER_TOKEN * (info.max_prompt_len + 1)
    if isinstance(prompt, str):
        text = prompt
    else:
        messages = [item for item in prompt[:1] if isinstance(item, Message)]
        if not messages:
            return [item for item in prompt if isinstance(item, int)]
        # of what an assistant said a template may leave something out: old thoughts
        told = (item for item in prompt if isinstance(item, Message) and item.role != "assistant")
        text = "".join(message.content for message in told)
    return encoder.encode_text(text[:limit]) if len(text) > limit else (0,)


def _limit(request: RunRequest, info: EngineInfo) -> int | None:
    """How many tokens of a prompt stay; the answer has room, half of the context at most."""
    if request.truncate is None:
        return None
    room = info.max_prompt_len
    if not info.is_encoder_decoder:  # whose answer has a context of its own
        is_short = request.kind is RunKind.COMPLETION
        fallback = DEFAULT_COMPLETION_TOKENS if is_short else _ROOM_FOR_ANSWER
        context = room + 1
        room = context - min(request.options.max_tokens or fallback, context // 2)
    return min(request.truncate, room)


def _without_second_end(encoder: Encoder, ids: list[int]) -> list[int]:
    """What an encoder reads; an end that the caller wrote is not written again."""
    added = encoder.encode_text("")
    return ids[:-1] if added and ids[-2:] == 2 * added[-1:] else ids


def _encode(
    encode_text: EncodeText, encode_chat: EncodeChat, prompt: Prompt, limit: int | None
) -> list[int]:
    """The ids of a prompt, or of its end if it has more than `limit`."""
    if isinstance(prompt, str):
        return encode_text(prompt) if limit is None else last_of_text(encode_text, prompt, limit)
    messages, ids = [], []
    for item in prompt:
        ids.append(item) if isinstance(item, int) else messages.append(item)
    if not messages:
        return ids if limit is None else last_of_ids(ids, limit)
    return encode_chat(messages) if limit is None else last_of_chat(encode_chat, messages, limit)


def _check_ids(request: RunRequest, info: EngineInfo) -> None:
    """An id outside the vocabulary never gets as far as the engine."""
    given = {
        "logit_bias": [token_id for token_id, _ in request.options.logit_bias],
        "stop_token_ids": list(request.options.stop_token_ids),
        "prompt": [i for p in request.prompts for i in p if isinstance(i, int)],
    }
    for param, ids in given.items():
        for token_id in ids:
            if not 0 <= token_id < info.vocab_size:
                raise InvalidRequest(
                    f"token id {token_id} is not in the vocabulary of {info.vocab_size}", param
                )


def _check_prompt(prompt: Sequence[int], info: EngineInfo, param: str, at_least: str = "") -> None:
    if not prompt:
        raise InvalidRequest("the prompt has no tokens", param)
    if len(prompt) > info.max_prompt_len:
        limit = (
            f"the model reads {info.max_prompt_len} at most"
            if info.is_encoder_decoder
            else f"the context of {info.max_model_len} must hold it and at least one more"
        )
        message = f"the prompt has {at_least}{len(prompt)} tokens; {limit}"
        raise ContextLengthExceeded(message, param)


def _check_fit(prompt: Sequence[int], info: EngineInfo, param: str) -> None:
    """A tokenizer may know more ids than the model has embeddings; others can be served still."""
    if (token_id := max(prompt)) >= info.vocab_size:
        raise InvalidRequest(
            f"the text has token id {token_id}, which the model, with a vocabulary of "
            f"{info.vocab_size}, does not have: its tokenizer and its weights do not fit",
            param,
        )


def _sampling(request: RunRequest, model: Served, info: EngineInfo) -> SamplingParams:
    """The request's options over the model's defaults over the API's.

    Raises:
        InvalidRequest: the engine does not sample like this.
    """
    asked, defaults = request.options, model.default_sampling

    def either(value: float | None, name: str, fallback: float) -> float:
        return defaults.get(name, fallback) if value is None else value

    is_short = request.kind is RunKind.COMPLETION
    limit = DEFAULT_COMPLETION_TOKENS if is_short else info.max_model_len
    # translations and summaries are to be right, not surprising
    fallback = 0.0 if info.is_encoder_decoder else 1.0
    temperature = either(asked.temperature, "temperature", fallback)
    if info.max_temperature is not None and temperature > info.max_temperature:
        message = (
            f"a temperature of {temperature} is over {info.max_temperature}, this engine's limit"
        )
        raise InvalidRequest(message, "temperature")
    return SamplingParams(
        max_tokens=limit if asked.max_tokens is None else min(asked.max_tokens, info.max_model_len),
        seed=secrets.randbits(62) if asked.seed is None else asked.seed,
        temperature=temperature,
        top_p=either(asked.top_p, "top_p", 1.0),
        top_k=int(either(asked.top_k, "top_k", 0)),
        min_p=either(asked.min_p, "min_p", 0.0),
        repetition_penalty=either(asked.repetition_penalty, "repetition_penalty", 1.0),
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
        logit_bias=asked.logit_bias,
        min_tokens=asked.min_tokens,
        ignore_eos=asked.ignore_eos,
        stop_token_ids=asked.stop_token_ids,
    )
