"""An engine that follows a script: for faults, and for load above the engine. Needs no torch.

Its tokens are a pure function of the prompt, the seed and the index, so a run continued elsewhere
gives the same ids. Settable: how long loading and each step take, and what goes wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace

from streamwell.core.engine_state import EngineInfo, EngineState, EngineStats, EngineStatus
from streamwell.core.errors import EngineDied, EngineError, LoadError, SequenceFailed
from streamwell.core.types import FinishReason, GenerateRequest, TokenDelta

#: `(prompt_ids, seed, index) -> token id`.
Script = Callable[[Sequence[int], int, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong, and when."""

    load_error: str | None = None
    #: The engine dies, once, when a request reaches this many tokens; then it loads again.
    die_at_token: int | None = None
    #: It does so every time, and the next one too.
    is_poisoned: bool = False
    #: A request fails alone at this many tokens.
    fail_at_token: int | None = None


class ScriptedEngine:
    """The `Engine` port without a model."""

    def __init__(
        self,
        script: Script,
        *,
        vocab_size: int,
        max_model_len: int = 4096,
        eos_token_id: int | None = None,
        load_s: float = 0.0,
        step_s: float = 0.0,
        max_num_seqs: int = 64,
        faults: Faults | None = None,
    ) -> None:
        self._script = script
        self._info = EngineInfo(
            max_model_len=max_model_len,
            vocab_size=vocab_size,
            num_blocks=max_num_seqs,
            block_size=max_model_len,
            dtype="none",
            device="none",
        )
        self._eos_token_id = eos_token_id
        self._load_s = load_s
        self._step_s = step_s
        self._slots = asyncio.Semaphore(max_num_seqs)
        self._faults = faults or Faults()
        self._status = EngineStatus(EngineState.STARTING)
        self._loaded = asyncio.Event()
        self._loading: asyncio.Task[None] | None = None
        self._num_running = self._num_waiting = self._num_steps = 0
        self._has_died = False
        #: Which life of the engine this is; requests of an earlier one have died with it.
        self._life = 0
        #: Folders of adapters, and which addition each comes from.
        self._adapters: dict[str, tuple[str, int]] = {}
        self._num_added = 0

    def start(self) -> None:
        self._loaded.clear()
        self._status = EngineStatus(EngineState.LOADING, "pretending")
        self._loading = asyncio.create_task(self._load())

    async def stop(self) -> None:
        self._status = EngineStatus(EngineState.STOPPED)
        self._life += 1
        if self._loading is not None:
            self._loading.cancel()
        self._loaded.set()

    async def ready(self) -> EngineInfo:
        await self._loaded.wait()
        if self._faults.load_error is not None:
            raise LoadError(self._faults.load_error)
        if self._status.state is EngineState.STOPPED:
            raise EngineDied("The engine was stopped.")
        return self._info

    def status(self) -> EngineStatus:
        return self._status

    def stats(self) -> EngineStats:
        return EngineStats(
            num_running=self._num_running,
            num_waiting=self._num_waiting,
            num_used_blocks=self._num_running,
            num_blocks=self._info.num_blocks,
            num_steps=self._num_steps,
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenDelta, None]:
        if self._status.state is not EngineState.READY:
            raise EngineDied("The engine is not up.")
        self._check_prompt(request.prompt_ids)
        adapter = self._adapter_of(request)
        self._num_waiting += 1
        clock = asyncio.get_running_loop().time
        came_s = clock()
        try:
            await self._slots.acquire()
        finally:
            self._num_waiting -= 1
        due_s = clock()
        queue_s = due_s - came_s
        self._num_running += 1
        life = self._life
        try:
            for index in range(len(request.completion_ids), request.sampling.max_tokens):
                due_s += self._step_s  # of a schedule: a late token does not delay the next
                await asyncio.sleep(due_s - clock())
                self._num_steps += 1
                self._check(index, life)
                self._check_adapter(request, adapter)
                delta = replace(self._delta(request, index), queue_s=queue_s)
                queue_s = 0.0
                yield delta
                if delta.finish_reason is not None:
                    return
        finally:
            self._num_running -= 1
            self._slots.release()

    async def add_adapter(self, name: str, path: str) -> None:
        """Any folder will do: nothing is read."""
        if self._status.state is not EngineState.READY:
            raise EngineDied("The engine is not up.")
        if not name or self._adapters.get(name, (path, 0))[0] != path:
            raise ValueError(f"the name {name!r} is empty or that of another adapter")
        if name not in self._adapters:
            self._num_added += 1
            self._adapters[name] = (path, self._num_added)

    async def remove_adapter(self, name: str) -> None:
        self._adapters.pop(name, None)

    async def _load(self) -> None:
        await asyncio.sleep(self._load_s)
        if self._faults.load_error is None:
            self._status = EngineStatus(EngineState.READY, "ready", 1.0)
        else:
            self._status = EngineStatus(EngineState.FAILED, error=self._faults.load_error)
        self._loaded.set()

    def _die(self) -> None:
        """End all requests, and load again."""
        self._has_died = not self._faults.is_poisoned
        self._life += 1
        self._status = EngineStatus(EngineState.RESTARTING, "restarting")
        self._loaded.clear()
        self._loading = asyncio.create_task(self._load())

    def _check_prompt(self, prompt_ids: Sequence[int]) -> None:
        """Refuse what a real engine cannot run."""
        if not 0 < len(prompt_ids) < self._info.max_model_len:
            raise SequenceFailed(f"a prompt of {len(prompt_ids)} tokens")
        if not all(0 <= token_id < self._info.vocab_size for token_id in prompt_ids):
            raise SequenceFailed("a token id is not in the vocabulary")

    def _adapter_of(self, request: GenerateRequest) -> tuple[str, int] | None:
        """What was added under the name that a request gives, if it gives one."""
        if request.adapter and request.adapter not in self._adapters:
            raise SequenceFailed(f"there is no adapter {request.adapter!r}")
        return self._adapters.get(request.adapter)

    def _check_adapter(self, request: GenerateRequest, adapter: tuple[str, int] | None) -> None:
        """Refuse to go on with an adapter that has been removed."""
        if self._adapters.get(request.adapter) != adapter:
            raise SequenceFailed(f"the adapter {request.adapter!r} was removed")

    def _check(self, index: int, life: int) -> None:
        """Raise what the script says goes wrong at this token."""
        error: EngineError | None = None
        if index == self._faults.die_at_token and not self._has_died:
            self._die()
        if self._status.state is not EngineState.READY or life != self._life:
            error = EngineDied()
        elif index == self._faults.fail_at_token:
            error = SequenceFailed()
        if error is not None:
            raise error

    def _delta(self, request: GenerateRequest, index: int) -> TokenDelta:
        sampling = request.sampling
        token_id = self._script(request.prompt_ids, sampling.seed, index)
        is_eos = token_id == self._eos_token_id and not sampling.ignore_eos
        if is_eos and index + 1 >= sampling.min_tokens:
            return TokenDelta((token_id,), FinishReason.STOP)
        is_last = index + 1 == sampling.max_tokens
        is_last |= len(request.prompt_ids) + index + 1 >= self._info.max_model_len
        return TokenDelta((token_id,), FinishReason.LENGTH if is_last else None)
