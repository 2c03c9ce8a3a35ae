"""The calls of one stream, carried out in order of arrival, while there is room for their answers."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cenote_proto.v1 import runtime_pb2
from cenote_worker.serving.limits import MAX_CARRIED, MAX_IN_FLIGHT
from cenote_worker.serving.listeners import CellListener
from cenote_worker.serving.served_runtime import ServedRuntime
from cenote_worker.supervisor.requests import Withdraw


@dataclass(slots=True, eq=False, kw_only=True)
class QueuedCall:
    """A call that its runtime has not answered.

    number: the client's number. key: identifies a call that is sent again; cells and patches always have one.
    run: sends it to the runtime; a return value is the answer already. It blocks where there is no jail yet.
    at_once: does not wait for other calls. blocks: whether running it now blocks in any case; asked right before.
    carries: its answer may be as large as the policy allows.
    dispose: releases what it owns, if it is never run. cell: the listener of a cell.
    """

    number: int
    key: str = ""
    run: Callable[[], runtime_pb2.ServerFrame | None]
    at_once: bool = False
    blocks: Callable[[], bool] = lambda: False
    carries: bool = False
    dispose: Callable[[], None] | None = None
    cell: CellListener | None = None
    withdraw: Withdraw | None = None
    """Set when a cell or a patch has been sent."""
    withdrawn: bool = False
    """The client wants no answer any more."""
    settled: bool = False
    """The runtime has answered."""

    def drop(self) -> None:
        """Disposes of a call that is never run."""
        if self.dispose is not None:
            self.dispose()


def unnamed_key() -> str:
    """A key for a call that needs one and came without."""
    return f"unnamed {secrets.token_hex(8)}"


CallResult = Callable[[], runtime_pb2.ServerFrame | None]
"""Gives the result of running a call, or raises its error."""


class CallQueue:
    """On the server's loop only. A call that may block goes to a thread, and the calls after it wait."""

    def __init__(
        self, served: ServedRuntime, full: Callable[[], bool], sent: Callable[[QueuedCall, CallResult], None]
    ) -> None:
        """full: whether the client is slow to take its answers. sent: called when a call has been run."""
        self._served = served
        self._full = full
        self._sent = sent
        self._waiting: deque[QueuedCall] = deque()
        self._busy = False
        """Whether a call of the queue is being run on a thread."""
        self._in_flight = 0
        self._carried = 0
        """Number of calls for values and files between the request and the last chunk."""

    def add(self, call: QueuedCall) -> None:
        if call.at_once and not self._served.held:
            self._run(call)
        else:
            self._waiting.append(call)
            self.go_on()

    def go_on(self) -> None:
        """Runs waiting calls while there is room."""
        while self._waiting and not self._busy and self._has_room(self._waiting[0]):
            self._run(self._waiting.popleft())

    def take_back(self, call: QueuedCall) -> bool:
        """Withdraws a waiting call, so that it is never run. Whether it was still waiting."""
        if call not in self._waiting:
            return False
        self._waiting.remove(call)
        call.drop()
        return True

    def answered(self, call: QueuedCall, *, carrying: bool = False) -> None:
        """The runtime is done with the call. carrying: the content of its answer is yet to be sent; see `carried`."""
        self._in_flight -= 1
        if call.carries and not carrying:
            self._carried -= 1
        self.go_on()

    def carried(self) -> None:
        """The content of an answer has been sent, or is not sent any more."""
        self._carried -= 1
        self.go_on()

    def close(self) -> None:
        """Disposes of the waiting calls."""
        waiting, self._waiting = list(self._waiting), deque()
        for call in waiting:
            call.drop()

    def _has_room(self, call: QueuedCall) -> bool:
        if self._served.held or self._full() or self._in_flight >= MAX_IN_FLIGHT:
            return False
        return not call.carries or self._carried < MAX_CARRIED

    def _run(self, call: QueuedCall) -> None:
        self._in_flight += 1
        self._carried += call.carries
        with self._served.at_hand() as ready:
            if ready and not call.blocks():
                self._sent(call, call.run)
                return
        self._busy = self._busy or not call.at_once
        self._served.start(call.run, partial(self._run_apart, call), at_once=call.at_once)

    def _run_apart(self, call: QueuedCall, future: asyncio.Future[runtime_pb2.ServerFrame | None]) -> None:
        self._busy = self._busy and call.at_once
        self._sent(call, future.result)
        self.go_on()
