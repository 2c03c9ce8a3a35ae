"""A full run of a history on a platform, beside the runtime that has that: looked at by questions to that one."""

from __future__ import annotations

from typing import Protocol

from cenote.runtime.backend import Withdraw
from cenote.runtime.remote import frames
from cenote.runtime.remote.frames import Request
from cenote.runtime.remote.history_copy import HistoryCopy
from cenote_proto.v1 import runtime_pb2
from cenote_worker.history.history import History
from cenote_worker.hosted.files import FileAsk
from cenote_worker.supervisor.requests import Listener


class Asking(Protocol):
    """A runtime that was started, as questions and requests are sent to it."""

    def asked(self, frame: runtime_pb2.ClientFrame, what: str, *, changes: bool) -> runtime_pb2.ServerFrame:
        """The one frame that is the answer. what: for the error when none comes. Blocks; raises what came instead."""

    def request(self, request: Request, listener: Listener) -> Withdraw:
        """Queues it. The listener hears of it in any case."""


class RemoteFullRun:
    """See LookedAt. number: that this client has given it. There until it is ended."""

    def __init__(self, asking: Asking, number: int) -> None:
        self._asking = asking
        self._number = number
        self._history = HistoryCopy()

    def history(self) -> History:
        """Its own. May block. Raises UnavailableError when it has ended."""

        def ask(frame: runtime_pb2.ClientFrame) -> runtime_pb2.ServerFrame:
            frame.beside = self._number
            return self._asking.asked(frame, "tell the history of a full run", changes=False)

        return self._history.read(ask)

    def describe(self, listener: Listener) -> None:
        self._ask(frames.description(), listener)

    def fetch(self, name: str, listener: Listener, *, opaque: bool) -> None:
        self._ask(frames.fetch(name, opaque=opaque), listener)

    def file(self, ask: FileAsk, listener: Listener) -> None:
        self._ask(frames.file(ask), listener)

    def resume(self) -> None:
        """Nothing is printed there."""

    def _ask(self, request: Request, listener: Listener) -> None:
        request[0].beside = self._number
        self._asking.request(request, listener)
