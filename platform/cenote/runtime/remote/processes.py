"""A process beside a namespace on a platform: a stream of its own, on the background loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from typing import Final

import grpc

from cenote.runtime.remote.background import background
from cenote.runtime.remote.channels import authorization, meaning
from cenote.runtime.remote.session import ServedAt
from cenote_proto.v1 import runtime_pb2
from cenote_proto.v1.runtime_pb2_grpc import RuntimeServiceStub
from cenote_security.errors import (
    CenoteError,
    JailLostError,
    NotAuthenticatedError,
    ProtocolViolation,
    RuntimeClosedError,
    UnavailableError,
    UnknownRuntimeError,
    UsageError,
)
from cenote_worker.execution.programs import ProgramEnd, ProgramOrder
from cenote_worker.supervisor.program import ProgramListener
from cenote_worker.wire.programs import start_of, to_end

Stream = grpc.aio.StreamStreamCall[runtime_pb2.ProcessInput, runtime_pb2.ProcessOutput]
Taken = Callable[[Exception | None], None]

PIECE: Final = 256 * 1024
"""Bytes of input in one message."""

WAITING: Final = 8
"""Pieces of input that are sent before the first of them was taken."""

_AGAIN: Final = (NotAuthenticatedError, UnavailableError, UnknownRuntimeError)
"""What a place that is not the right one any more answers: then the gateway is asked for it."""


class RemoteProcess:
    """See ProgramHandle. `run` is its life, on the background loop; all else is called from any thread."""

    def __init__(self, order: ProgramOrder, client: str, listener: ProgramListener) -> None:
        self._order = order
        self._client = client
        self._listener = listener
        self._waiting = deque[tuple[bytes, Taken | None]]()
        self._unanswered = deque[Taken | None]()
        self._others = deque[runtime_pb2.ProcessInput]()
        self._filled = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._closes = self._has_closed = False
        self._begun = self._over = False
        self._is_read_out = False
        """It was killed: what is left of its output is bounded, and its end comes behind that."""

    # -- from any thread --

    def write(self, data: bytes, taken: Taken) -> None:
        pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)] or [b""]
        self._post(lambda: self._write(pieces, taken))

    def close_input(self) -> None:
        self._post(self._close_input)

    def signal(self, number: int) -> None:
        self._say(runtime_pb2.ProcessInput(signal=number))

    def resize(self, rows: int, columns: int) -> None:
        self._say(runtime_pb2.ProcessInput(resize=runtime_pb2.TerminalSize(rows=rows, columns=columns)))

    def kill(self) -> None:
        self._is_read_out = True
        self._say(runtime_pb2.ProcessInput(kill=True))
        self.resume()

    def resume(self) -> None:
        self._post(self._may_read.set)

    def _say(self, message: runtime_pb2.ProcessInput) -> None:
        def put() -> None:
            self._others.append(message)
            self._filled.set()

        self._post(put)

    @staticmethod
    def _post(callback: Callable[[], object]) -> None:
        with suppress(RuntimeClosedError):  # the process ends, and the stream with it
            background().post(callback)

    # -- on the loop --

    async def run(
        self,
        place: ServedAt,
        locate: Callable[[], Awaitable[ServedAt]],
        connect: Callable[[str, str], AbstractContextManager[grpc.aio.Channel]],
    ) -> None:
        """place: where the runtime was last; `locate` says where it is now."""
        outcome: ProgramEnd | Exception
        try:
            try:
                outcome = await self._attempt(place, connect)
            except _AGAIN:
                if self._begun:
                    raise
                outcome = await self._attempt(await locate(), connect)
        except _AGAIN as error:
            outcome = error
            if self._begun:
                outcome = JailLostError(f"the line to the process broke, which has ended it ({error})")
        except Exception as error:  # noqa: BLE001  (its hearer has to hear of it, whatever it is)
            outcome = error if isinstance(error, CenoteError) else UnavailableError(repr(error))
        self._over = True
        ended = UsageError("the process has ended")
        for taken in (*self._unanswered, *(taken for _, taken in self._waiting)):
            if taken is not None:
                taken(ended)
        self._listener.ended(outcome)

    async def _attempt(
        self, place: ServedAt, connect: Callable[[str, str], AbstractContextManager[grpc.aio.Channel]]
    ) -> ProgramEnd:
        with connect(place.address, place.authority) as channel:
            stream: Stream = RuntimeServiceStub(channel).RunProcess(metadata=authorization(place.credential))
            telling = asyncio.create_task(self._tell(stream, place.runtime))
            try:
                return await self._hear(stream)
            except grpc.aio.AioRpcError as error:
                raise meaning(error, place.address, known=True) from None
            finally:
                telling.cancel()
                stream.cancel()
                await asyncio.gather(telling, return_exceptions=True)

    async def _hear(self, stream: Stream) -> ProgramEnd:
        while isinstance(message := await stream.read(), runtime_pb2.ProcessOutput):
            self._begun = True
            match message.WhichOneof("body"):
                case "started":
                    self._listener.started(message.started)
                case "stdout":
                    await self._print("stdout", message.stdout)
                case "stderr":
                    await self._print("stderr", message.stderr)
                case "taken":
                    self._taken(message.taken.refusal)
                case "ended":
                    return to_end(message.ended)
                case _:
                    raise ProtocolViolation("a server that says something unknown of a process")
        raise UnavailableError("the platform hung up")

    async def _print(self, stream: str, data: bytes) -> None:
        """A reader that is slow keeps this from reading, and so the process from writing."""
        self._may_read.clear()
        may_go_on = self._listener.output("stdout" if stream == "stdout" else "stderr", data)
        if not (may_go_on or self._is_read_out):
            await self._may_read.wait()

    async def _tell(self, stream: Stream, runtime: str) -> None:
        with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):  # who hears says why
            await stream.write(start_of(self._order, runtime, self._client))
            while True:
                while (message := self._next()) is not None:
                    await stream.write(message)
                self._filled.clear()
                await self._filled.wait()

    def _next(self) -> runtime_pb2.ProcessInput | None:
        if self._others:
            return self._others.popleft()
        if self._waiting and len(self._unanswered) < WAITING:
            data, taken = self._waiting.popleft()
            self._unanswered.append(taken)
            return runtime_pb2.ProcessInput(input=data)
        if self._closes and not self._has_closed and not self._waiting:
            self._has_closed = True
            return runtime_pb2.ProcessInput(close_input=True)
        return None

    def _write(self, pieces: list[bytes], taken: Taken) -> None:
        if self._over or self._closes:
            taken(UsageError("the process takes no input any more"))
            return
        self._waiting.extend((piece, None) for piece in pieces[:-1])
        self._waiting.append((pieces[-1], taken))
        self._filled.set()

    def _taken(self, refusal: str) -> None:
        taken = self._unanswered.popleft() if self._unanswered else None
        if taken is not None:
            taken(UsageError(refusal) if refusal else None)
        self._filled.set()

    def _close_input(self) -> None:
        self._closes = not self._order.spec.terminal
        if self._order.spec.terminal:
            self._others.append(runtime_pb2.ProcessInput(close_input=True))
        self._filled.set()
