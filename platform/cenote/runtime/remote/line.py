"""One stream to a server of runtimes: frames in the order of an outbox out, frames in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import grpc

from cenote.runtime.remote.outbox import Outbox
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import ProtocolViolation, UnavailableError
from cenote_worker.content import Content
from cenote_worker.wire.failures import to_error

Stream = grpc.aio.StreamStreamCall[runtime_pb2.ClientFrame, runtime_pb2.ServerFrame]

HANDSHAKE: Final = 10.0
"""Seconds for a server to say Welcome."""

LAST_WORDS: Final = 1.0
"""Seconds for a server to say why it ends a stream that cannot be written to, or to agree to its end."""


class Line:
    """On the background loop. `greet` first, then `carry`; what is put meanwhile goes out in order."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._outbox = Outbox()
        self._filled = asyncio.Event()
        self._finishing = False
        self.calls = 0
        """How many were sent on it."""

    def put(self, frame: runtime_pb2.ClientFrame, content: Content | None = None) -> None:
        """Sends a frame, then the content in chunks. That stays the caller's, and open until it is gone."""
        self._outbox.put(frame)
        if content is not None:
            self._outbox.put_content(frame.call, content)
        self._filled.set()

    def forget(self, call: int) -> None:
        """No more chunks of this call."""
        self._outbox.forget(call)

    def finish(self) -> None:
        """Nothing more will be put: the server is told so when the rest is out, and then ends the stream."""
        self._finishing = True
        self._filled.set()

    async def greet(self, hello: runtime_pb2.Hello) -> runtime_pb2.Welcome:
        """Raises UnavailableError, AioRpcError, or what the server says."""
        try:
            async with asyncio.timeout(HANDSHAKE):
                await self._stream.write(runtime_pb2.ClientFrame(hello=hello))
                frame = await self._stream.read()
        except TimeoutError:
            raise UnavailableError("the platform takes connections and says nothing; try again") from None
        except asyncio.InvalidStateError:  # the stream ended before a word was written; its status says why
            frame = await self._stream.read()
        if not isinstance(frame, runtime_pb2.ServerFrame):
            raise UnavailableError("the platform hung up before it said anything; try again")
        if frame.HasField("failure"):
            raise to_error(frame.failure)
        if not frame.HasField("welcome"):
            raise ProtocolViolation("a server that does not say Welcome")
        return frame.welcome

    async def carry(self, hear: Callable[[runtime_pb2.ServerFrame], None]) -> None:
        """Until the server ends the stream. Raises AioRpcError for how it did, and whatever `hear` raises."""
        reading = asyncio.create_task(self._read(hear))
        writing = asyncio.create_task(self._write())
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():  # what keeps the one from writing, the other hears in words
                await asyncio.wait((reading,), timeout=LAST_WORDS)
        finally:
            reading.cancel()
            writing.cancel()
            ends = await asyncio.gather(reading, writing, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, asyncio.InvalidStateError):
                raise end

    def cut(self) -> None:
        """Ends the stream at once. Cutting twice is fine."""
        self._stream.cancel()

    async def _read(self, hear: Callable[[runtime_pb2.ServerFrame], None]) -> None:
        while isinstance(frame := await self._stream.read(), runtime_pb2.ServerFrame):
            hear(frame)

    async def _write(self) -> None:
        while True:
            frame = self._outbox.take()
            if frame is not None:
                await self._stream.write(frame)
            elif self._finishing:
                await self._stream.write(runtime_pb2.ClientFrame(goodbye=runtime_pb2.Goodbye()))
                await self._stream.done_writing()
                return
            else:
                self._filled.clear()
                await self._filled.wait()
