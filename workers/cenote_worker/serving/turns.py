"""The calls of one stream, carried out in the order in which they came, as far as there is room for their answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from cenote_proto.v1 import runtime_pb2
from cenote_worker.serving.calls import Call
from cenote_worker.serving.limits import MAX_CARRIED, MAX_IN_FLIGHT
from cenote_worker.serving.served import ServedRuntime

Result = Callable[[], runtime_pb2.ServerFrame | None]
"""What running a call gave, or raises what it raised."""


class Turns:
    """On the server's loop only. A call that may block goes to a thread, and those behind it wait."""

    def __init__(
        self, served: ServedRuntime, full: Callable[[], bool], sent: Callable[[Call, Result], None]
    ) -> None:
        """full: whether the client is behind with its answers. sent: called when a call has been run."""
        self._served = served
        self._full = full
        self._sent = sent
        self._waiting: deque[Call] = deque()
        self._busy = False
        """The call whose turn it was is being run on a thread."""
        self._in_flight = 0
        self._carried = 0
        """Values and files, from the request to the last chunk."""

    def add(self, call: Call) -> None:
        if call.at_once and not self._served.held:
            self._run(call)
        else:
            self._waiting.append(call)
            self.go_on()

    def go_on(self) -> None:
        """Runs what waits, as far as there is room."""
        while self._waiting and not self._busy and self._has_room(self._waiting[0]):
            self._run(self._waiting.popleft())

    def take_back(self, call: Call) -> bool:
        """Whether the call was still waiting; then it is never run."""
        if call not in self._waiting:
            return False
        self._waiting.remove(call)
        call.drop()
        return True

    def answered(self, call: Call, *, carrying: bool = False) -> None:
        """The runtime is done with the call. carrying: the content of its answer is yet to be sent; see `carried`."""
        self._in_flight -= 1
        if call.carries and not carrying:
            self._carried -= 1
        self.go_on()

    def carried(self) -> None:
        """The content of an answer is on its way no more."""
        self._carried -= 1
        self.go_on()

    def close(self) -> None:
        """What waits is never run."""
        waiting, self._waiting = list(self._waiting), deque()
        for call in waiting:
            call.drop()

    def _has_room(self, call: Call) -> bool:
        if self._served.held or self._full() or self._in_flight >= MAX_IN_FLIGHT:
            return False
        return not call.carries or self._carried < MAX_CARRIED

    def _run(self, call: Call) -> None:
        self._in_flight += 1
        self._carried += call.carries
        with self._served.at_hand() as ready:
            if ready and not call.blocks():
                self._sent(call, call.run)
                return
        self._busy = self._busy or not call.at_once
        self._served.start(call.run, partial(self._run_apart, call), at_once=call.at_once)

    def _run_apart(self, call: Call, future: asyncio.Future[runtime_pb2.ServerFrame | None]) -> None:
        self._busy = self._busy and call.at_once
        self._sent(call, future.result)
        self.go_on()
