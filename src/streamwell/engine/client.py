"""The server's side of the engine: supervisor of the engine process and its asyncio face.

The process is a child, so its Python never competes with the event loop, and a crash, an
out-of-memory kill or a hang takes down no connection. Death is noticed by the closed socket, a
frozen process by missing heartbeats, a hanging step by its time; all end the live requests with
`EngineDied` and start a new process, later and later when engines keep dying.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec
import structlog

from streamwell.core.engine_state import EngineInfo, EngineState, EngineStats, EngineStatus
from streamwell.core.errors import EngineDied, LoadError, SequenceFailed
from streamwell.core.types import GenerateRequest, TokenDelta
from streamwell.engine.adapter_calls import AdapterCalls
from streamwell.engine.backoff import Backoff
from streamwell.engine.came_up import tell
from streamwell.engine.connection import HEARTBEAT_S
from streamwell.engine.launch import EngineProcess, launch
from streamwell.engine.mailbox import Mailbox
from streamwell.engine.messages import (
    HEADER_BYTES,
    Abort,
    AdapterAdded,
    Add,
    Alive,
    Command,
    Commands,
    EngineConfig,
    Loaded,
    LoadFailed,
    Loading,
    StepOutput,
    ToServer,
    body_length,
    decode_to_server,
    encode_frame,
)

log = structlog.get_logger()

#: Seconds without a heartbeat after which a process is taken for frozen. While it loads, imports
#: may hold up its heartbeats for long.
FROZEN_S, FROZEN_LOADING_S = 8.0, 60.0
SECOND_LOOK_S = 0.5
#: Processes that may end while they load a model that has never been up.
MAX_LOST_LOADS = 3


class ProcessEngine:
    """The `Engine` port over a supervised child process."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        hang_timeout_s: float,
        first: EngineProcess | None = None,
        launch: Callable[[], EngineProcess] = launch,
        backoff: Backoff | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`first` is a process that has been launched already; tests give the rest."""
        self._first = first
        self._launch = launch
        self._backoff = backoff or Backoff()
        self._sleep = sleep
        self._config = config
        self._hang_timeout_s = hang_timeout_s
        self._status = EngineStatus(EngineState.STARTING)
        self._stats = EngineStats()
        self._mailboxes: dict[str, Mailbox] = {}
        self._adapters = AdapterCalls(self._send)
        self._outbox: list[Command] = []
        self._writer: asyncio.StreamWriter | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._loaded: asyncio.Future[EngineInfo] | None = None
        #: Since it was started.
        self._has_been_ready = False
        self._num_lost_loads = 0
        #: Heartbeats since the engine was ready, or told of its last step.
        self._num_beats = 0

    def start(self) -> None:
        self._status = EngineStatus(EngineState.STARTING)
        self._has_been_ready = False
        self._num_lost_loads = 0
        self._loaded = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(self._supervise(), name="engine supervisor")

    async def stop(self) -> None:
        self._status = EngineStatus(EngineState.STOPPED)  # nothing is asked of it any more
        if self._supervisor is not None:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
        if self._first is not None:  # stopped before the supervisor took it over
            await asyncio.to_thread(self._first.end)
        self._status = EngineStatus(EngineState.STOPPED)
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(EngineDied("The engine was stopped."))
            self._loaded.exception()  # it may be that nobody waits for it

    async def ready(self) -> EngineInfo:
        if self._loaded is None:
            raise EngineDied("The engine was not started.")
        return await asyncio.shield(self._loaded)

    def status(self) -> EngineStatus:
        return self._status

    def stats(self) -> EngineStats:
        return self._stats

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenDelta, None]:
        if self._status.state is not EngineState.READY:
            raise EngineDied("The engine is not up.")
        mailbox = self._mailboxes[request.request_id] = Mailbox()
        self._send(Add(request))
        try:
            while True:
                delta = await mailbox.take()
                yield delta
                if delta.finish_reason is not None:
                    return
        finally:
            del self._mailboxes[request.request_id]
            if not mailbox.is_ended:
                self._send(Abort(request.request_id))

    async def add_adapter(self, name: str, path: str) -> None:
        if self._status.state is not EngineState.READY:
            raise EngineDied("The engine is not up.")
        await self._adapters.add(name, path)

    async def remove_adapter(self, name: str) -> None:
        self._adapters.remove(name)

    def _send(self, command: Command) -> None:
        """Commands of one turn of the event loop travel together."""
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(command)

    def _flush(self) -> None:
        commands, self._outbox = tuple(self._outbox), []
        if self._writer is not None:
            self._writer.write(encode_frame(Commands(commands)))

    async def _supervise(self) -> None:
        while True:
            running: EngineProcess | None = None
            try:
                running, self._first = self._first or self._launch(), None
                await self._serve(running)
            except Exception:
                log.exception("engine supervisor failed; starting a new engine")
            finally:
                num_steps, num_cut = self._stats.num_steps, len(self._mailboxes)
                self._lose_process()
                exit_code = await asyncio.shield(_end(running)) if running is not None else None
            if not self._has_been_ready:
                self._count_lost_load(exit_code)
            if self._status.state is EngineState.FAILED:
                return
            wait_s = self._backoff.after_death(num_steps)
            log.warning(
                "engine process died; starting another",
                num_cut_requests=num_cut,
                exit_code=exit_code,
                wait_s=wait_s,
            )
            await self._sleep(wait_s)

    def _count_lost_load(self, exit_code: int | None) -> None:
        """What takes its process with it when it is loaded will do so again."""
        self._num_lost_loads += 1
        if self._num_lost_loads == MAX_LOST_LOADS and self._status.state is not EngineState.FAILED:
            self._give_up(
                f"the engine process ended {MAX_LOST_LOADS} times while it was loading "
                f"(exit code {exit_code}; -9 may mean that memory ran out)"
            )

    def _lose_process(self) -> None:
        """The process is gone, or will be: nobody waits for it any longer."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._stats = EngineStats()
        if self._status.state in (EngineState.READY, EngineState.STARTING, EngineState.LOADING):
            self._status = EngineStatus(EngineState.RESTARTING, "restarting")
            if self._loaded is None or self._loaded.done():
                self._loaded = asyncio.get_running_loop().create_future()
        self._adapters.lose_engine()
        for mailbox in self._mailboxes.values():
            if not mailbox.is_ended:
                mailbox.fail(EngineDied())

    async def _serve(self, running: EngineProcess) -> None:
        """Serve one process until it ends, or hangs and is to be killed."""
        try:
            reader, self._writer = await asyncio.open_connection(sock=running.connection)
            config = msgspec.structs.replace(self._config, adapters=self._adapters.known)
            self._writer.write(encode_frame(config))
            while True:
                header = await self._read(reader, HEADER_BYTES)
                self._take(decode_to_server(await self._read(reader, body_length(header))))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except TimeoutError as error:
            log.warning("engine hangs; killing it", reason=str(error) or "no heartbeat")

    async def _read(self, reader: asyncio.StreamReader, num_bytes: int) -> bytes:
        """Raises `TimeoutError` if the process is silent for too long."""
        try:
            async with asyncio.timeout(self._silence_limit_s):
                return await reader.readexactly(num_bytes)
        except TimeoutError:
            # if this process was frozen itself, what came meanwhile has still to be looked at
            async with asyncio.timeout(SECOND_LOOK_S):
                return await reader.readexactly(num_bytes)

    @property
    def _silence_limit_s(self) -> float:
        return FROZEN_S if self._status.state is EngineState.READY else FROZEN_LOADING_S

    def _count_beat(self) -> None:
        """Raises `TimeoutError` if a ready engine has been in the same step for too long.

        Its own beats tell the time: where all of this was stopped for a while, there were none.
        """
        self._num_beats += 1
        is_ready = self._status.state is EngineState.READY
        if is_ready and self._num_beats * HEARTBEAT_S > self._hang_timeout_s:
            raise TimeoutError(f"no step in {self._hang_timeout_s} s")

    def _take(self, message: ToServer) -> None:
        match message:
            case StepOutput():
                self._deliver(message)
            case Alive():
                self._count_beat()
            case AdapterAdded():
                self._adapters.take(message)
            case Loading(stage, progress):
                self._status = EngineStatus(EngineState.LOADING, stage, progress)
            case Loaded(info):
                self._backoff.note_ready()
                self._has_been_ready = True
                self._status = EngineStatus(EngineState.READY, "ready", 1.0)
                self._num_beats = 0
                tell(info)
                if self._loaded is not None and not self._loaded.done():
                    self._loaded.set_result(info)
            case LoadFailed(error):
                self._give_up(error)

    def _give_up(self, error: str) -> None:
        """Loading failed; final the first time, while what was up once is tried again and again."""
        if self._has_been_ready:
            log.error("model cannot be loaded again for now", error=error)
            self._status = EngineStatus(EngineState.RESTARTING, "restarting", error=error)
            return
        self._status = EngineStatus(EngineState.FAILED, "failed", error=error)
        log.error("model cannot be loaded", error=error)
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(LoadError(error))
            self._loaded.exception()  # it may be that nobody waits for it

    def _deliver(self, message: StepOutput) -> None:
        # an engine that hangs tells of requests, too, which are aborted or refused
        if message.stats.num_steps != self._stats.num_steps or not self._mailboxes:
            self._num_beats = 0
        self._stats = message.stats
        for output in message.outputs:
            mailbox = self._mailboxes.get(output.request_id)
            if mailbox is None:
                continue  # its consumer left; the abort is on its way
            if output.error is not None:
                mailbox.fail(SequenceFailed(f"{SequenceFailed.__doc__} ({output.error})"))
            else:
                mailbox.put(output)


async def _end(running: EngineProcess) -> int | None:
    exit_code, pid = await asyncio.to_thread(running.end), running.process.pid
    if exit_code is None:
        log.error("engine process cannot be killed; going on without it", pid=pid)
    else:
        log.debug("engine process ended", pid=pid, exit_code=exit_code)
    return exit_code
