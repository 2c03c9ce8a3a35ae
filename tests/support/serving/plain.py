"""A second, independent client: generated stubs and gRPC only. What it can do, any language can."""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Callable, Iterator
from queue import Empty, Queue
from typing import Any

import grpc
from tests.waiting import PATIENCE

from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_proto.v1.runtime_pb2_grpc import RuntimeServiceStub

CHUNK = 1 << 20
"""Seconds that any one answer may take here."""

Frame = runtime_pb2.ServerFrame


class LineEnded(Exception):
    """The server ended the stream. code, failure: as the server sent them."""

    def __init__(self, error: grpc.RpcError | None) -> None:
        super().__init__(str(error))
        self.code = None if error is None else error.code()


def plain(data: bytes) -> jail_pb2.Payload:
    """Bytes that travel with their frame."""
    return jail_pb2.Payload(inline=data, size=len(data))


def packed(*parts: bytes) -> bytes:
    """Parts after the table of their lengths, each at a multiple of 64 bytes."""
    data = struct.pack(f"<{len(parts)}Q", *map(len, parts))
    for part in parts:
        data += bytes(-len(data) % 64) + part
    return data


def unpacked(payload: jail_pb2.Payload, data: bytes) -> list[bytes]:
    """The parts again."""
    lengths = struct.unpack_from(f"<{payload.count}Q", data)
    end, parts = 8 * payload.count, []
    for length in lengths:
        end += -end % 64
        parts.append(data[end : end + length])
        end += length
    return parts


class Line:
    """One stream to one runtime. Sends at once; received frames are stored until they are requested."""

    def __init__(
        self,
        address: str,
        runtime: str,
        client: str = "one",
        token: str = "good",
        room: int = 0,
        **hello: Any,
    ) -> None:
        """room: frames stored in each direction; 0 for any number."""
        self._channel = grpc.insecure_channel(address)
        self._out: Queue[runtime_pb2.ClientFrame | None] = Queue(room)
        self._in: Queue[Frame | LineEnded] = Queue(room)
        self._kept: list[Frame] = []
        self._numbers = itertools.count(1)
        metadata = (("authorization", f"Bearer {token}"),)
        self.stream = RuntimeServiceStub(self._channel).Attach(iter(self._out.get, None), metadata=metadata)
        greeting = {"oldest_version": 1, "newest_version": 1, "runtime": runtime, "client": client, **hello}
        self.put(runtime_pb2.ClientFrame(hello=runtime_pb2.Hello(**greeting)))
        self._reading = threading.Event()
        self._reading.set()
        threading.Thread(target=self._read, daemon=True).start()

    def welcome(self) -> runtime_pb2.Welcome:
        return self.until(lambda frame: frame.HasField("welcome")).welcome

    # -- sending --

    def put(self, frame: runtime_pb2.ClientFrame) -> None:
        self._out.put(frame)

    def send(self, key: str = "", **body: Any) -> int:
        """Sends a call; returns its number."""
        number = next(self._numbers)
        self.put(runtime_pb2.ClientFrame(call=number, key=key, **body))
        return number

    def chunks(self, call: int, data: bytes) -> None:
        for start in range(0, len(data), CHUNK):
            last = start + CHUNK >= len(data)
            chunk = runtime_pb2.Chunk(data=data[start : start + CHUNK], last=last)
            self.put(runtime_pb2.ClientFrame(call=call, chunk=chunk))

    def cell(self, code: str, key: str = "", heard: int = 0, timeout: float = 0) -> int:
        body = runtime_pb2.Cell(code=plain(code.encode()), heard=heard, timeout=timeout)
        return self.send(key, cell=body)

    def hear(self, call: int, position: int) -> None:
        self.put(runtime_pb2.ClientFrame(call=call, heard=runtime_pb2.Heard(position=position)))

    # -- receiving --

    def pause(self) -> None:
        """Receives nothing more from gRPC until `go_on`."""
        self._reading.clear()

    def go_on(self) -> None:
        self._reading.set()

    def frames(self) -> Iterator[Frame]:
        """Received frames, then new ones. Raises LineEnded."""
        while True:
            if self._kept:
                yield self._kept.pop(0)
            else:
                yield self._next()

    def until(self, wanted: Callable[[Frame], bool]) -> Frame:
        """The first matching frame; others are stored for later."""
        for index, frame in enumerate(self._kept):
            if wanted(frame):
                return self._kept.pop(index)
        while True:
            frame = self._next()
            if wanted(frame):
                return frame
            self._kept.append(frame)

    def answer(self, call: int) -> Frame:
        """The answer to a call; parts are joined, output is stored."""
        data = b""
        while True:
            frame = self.until(lambda frame: frame.call == call and not frame.HasField("output"))
            if not frame.HasField("part"):
                return frame
            data += frame.part.data
            if frame.part.last:
                return Frame.FromString(data)

    def content(self, call: int) -> bytes:
        """The content that follows an answer in chunks."""
        data = bytearray()
        while True:
            chunk = self.until(lambda frame: frame.call == call and frame.HasField("chunk")).chunk
            data += chunk.data
            if chunk.last:
                return bytes(data)

    def output(self, call: int) -> list[runtime_pb2.CellOutput]:
        """The output of a call that has arrived so far."""
        mine = [frame for frame in self._kept if frame.call == call and frame.HasField("output")]
        self._kept = [frame for frame in self._kept if frame not in mine]
        return [frame.output for frame in mine]

    def run(self, code: str, key: str = "") -> runtime_pb2.CellResult:
        return self.answer(self.cell(code, key)).result

    def ended(self) -> LineEnded:
        """Waits for the end of the stream; drops everything before it."""
        while True:
            try:
                self._next()
            except LineEnded as end:
                return end

    # -- the end --

    def finish(self) -> None:
        """Sends a goodbye."""
        self.put(runtime_pb2.ClientFrame(goodbye=runtime_pb2.Goodbye()))

    def fall_silent(self) -> None:
        """Closes its sending side without a goodbye."""
        self._out.put(None)

    def cut(self) -> None:
        """Cuts the connection."""
        self.stream.cancel()
        self._out.put(None)
        self._channel.close()

    def _next(self) -> Frame:
        try:
            item = self._in.get(timeout=PATIENCE)
        except Empty:
            raise AssertionError(f"nothing came; kept: {self._kept}") from None
        if isinstance(item, LineEnded):
            self._in.put(item)
            raise item
        return item

    def _read(self) -> None:
        error = None
        try:
            for frame in self.stream:
                self._in.put(frame)
                self._reading.wait()
        except grpc.RpcError as broken:
            error = broken
        self._in.put(LineEnded(error))
