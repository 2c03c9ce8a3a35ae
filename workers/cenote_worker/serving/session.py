"""One stream of one client: what it asks, in the order in which it asks, and what it is told.

On the server's loop only. The hot path, a cell for a jail that is there, goes from the frame to the jail's socket
without another thread; what may block goes to one, and what was asked after it waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import (
    CenoteError,
    ProtocolViolation,
    UnavailableError,
)
from cenote_worker.content import Content
from cenote_worker.results import ExecutionResult, JailStatus
from cenote_worker.serving.calls import Call
from cenote_worker.serving.client import Client
from cenote_worker.serving.edge import RIGHTS, check, payload_of
from cenote_worker.serving.limits import FIRST_HOST_CALL, MAX_CALLS, MAX_CARRIED, MAX_IN_FLIGHT
from cenote_worker.serving.outbox import Outbox
from cenote_worker.serving.references import FIRST_LEASE, UNCLAIMED, ReferenceRecord
from cenote_worker.serving.requests import Requests
from cenote_worker.serving.rights import Rights
from cenote_worker.serving.served import ServedRuntime
from cenote_worker.serving.uploads import Uploads
from cenote_worker.supervisor.edge import ExecutedReply, FileReply, ValueReply
from cenote_worker.supervisor.requests import Outcome, SharedReply
from cenote_worker.wire.failures import to_failure
from cenote_worker.wire.replies import from_reply
from cenote_worker.wire.results import from_info, from_result, from_status

_log = logging.getLogger("cenote.serving")

Frame = runtime_pb2.ServerFrame


class Session:
    """What a stream stands for. `over` is set when it has to end: with an error, or with None as agreed."""

    def __init__(
        self,
        served: ServedRuntime,
        rights: Rights,
        *,
        filled: Callable[[], None],
        drained: Callable[[], None],
    ) -> None:
        """filled: called when there may be something in the outbox, or nothing left to wait for. drained: when the
        outbox is not full any more. `begin` comes next.
        """
        self._served = served
        self._rights = rights
        self._filled = filled
        self._drained = drained
        self._finishing = False
        self.outbox = Outbox(filled, self._carried, self._resumed)
        self.over: asyncio.Future[CenoteError | None] = served.loop.create_future()
        self._calls: dict[int, Call] = {}
        self._waiting: deque[Call] = deque()
        self._busy = False
        """The call at the head is being sent on a thread."""
        self._in_flight = 0
        self._on_the_way = 0
        """Values and files, from the request to the last chunk."""
        self._uploads = Uploads(served.hosted.policy)

    def begin(self, client: Client) -> None:
        """Before the first frame is heard."""
        self._client = client
        self._requests = Requests(self._served, client, self._settled, self._printed)

    # -- Line --

    def tell(self, frame: Frame, content: Content | None = None) -> None:
        self.outbox.put(frame, content)

    def end(self, error: CenoteError | None) -> None:
        if not self.over.done():
            self.over.set_result(error)

    def finish(self) -> None:
        """The client asks nothing more; it still hears the answers."""
        self._finishing = True
        self._filled()

    @property
    def finished(self) -> bool:
        """The client asked nothing more, and has been answered."""
        return self._finishing and not self._calls

    # -- frames --

    def hear(self, frame: runtime_pb2.ClientFrame) -> None:
        """Raises ProtocolViolation for what must end the stream."""
        match body := frame.WhichOneof("body"):
            case "chunk":
                self._chunk(frame)
            case "heard":
                self._heard(frame)
            case "interrupt":
                self._interrupt()
            case "withdraw":
                self._withdraw(frame.call)
            case "host_answer":
                self._host_answer(frame)
            case str() if body in RIGHTS:
                self._open(frame, body)
            case _:
                raise ProtocolViolation(f"a frame with {body or 'nothing known'} in it, here")

    def _open(self, frame: runtime_pb2.ClientFrame, body: str) -> None:
        if not 0 < frame.call < FIRST_HOST_CALL or frame.call in self._calls or frame.call in self._uploads:
            raise ProtocolViolation("a call has a number below 2^63, unlike any other that waits")
        try:
            self._rights.require(RIGHTS[body])
            self._check_special_rights(frame, body)
            check(frame, body)
            if len(self._calls) + len(self._uploads) >= MAX_CALLS:
                raise UnavailableError(f"{MAX_CALLS} calls of this client wait for their answers already")
            payload = payload_of(frame, body)
            content = None
            if payload is not None:
                content = self._uploads.begin(frame, body, payload)
            if payload is None or content is not None:
                self._add(self._call(frame, body, content))
        except ProtocolViolation:
            raise
        except (CenoteError, OSError) as error:
            self._fail(frame.call, error)

    def _check_special_rights(self, frame: runtime_pb2.ClientFrame, body: str) -> None:
        if body == "injection" and frame.injection.reference:
            self._rights.require("share")
        if body == "file" and frame.file.operation in (
            jail_pb2.FileRequest.WRITE,
            jail_pb2.FileRequest.DELETE,
        ):
            self._rights.require("run")

    def _chunk(self, frame: runtime_pb2.ClientFrame) -> None:
        try:
            whole = self._uploads.add(frame.call, frame.chunk)
        except OSError as error:
            self._fail(frame.call, error)
            return
        if whole is None:
            return
        opened, body, content = whole
        if body == "host_answer":
            self._served.relay.answered(self._client, opened.call, opened.host_answer, content)
            return
        try:
            self._add(self._call(opened, body, content))
        except CenoteError as error:
            self._fail(opened.call, error)

    def _call(self, frame: runtime_pb2.ClientFrame, body: str, content: Content | None) -> Call:
        """The call of a frame that is whole. Takes the content over."""
        requests = self._requests
        match body:
            case "cell":
                assert content is not None
                return requests.cell(frame, content)
            case "injection":
                return requests.injection(frame, content)
            case "file":
                return requests.file(frame, content)
            case "fetch":
                return requests.fetch(frame)
            case "share":
                return requests.share(frame, self._keep)
            case "delete":
                return requests.deletion(frame, getattr(frame, "delete").name)  # noqa: B009
            case "describe":
                return requests.description(frame)
            case "start":
                return requests.start(frame)
            case "reset":
                return requests.reset(frame)
            case "network_log":
                return requests.network_log(frame)
            case "outcome":
                return requests.outcome(frame)
        return requests.status(frame)

    def _heard(self, frame: runtime_pb2.ClientFrame) -> None:
        call = self._calls.get(frame.call)
        if call is not None and call.cell is not None and call.cell.hear(frame.heard.position):
            self._served.hosted.resume()

    def _interrupt(self) -> None:
        """Of all cells, the one that runs; and only if it is one of this client's."""
        for call in list(self._calls.values()):
            if call.withdraw is not None:
                call.withdraw(waiting=False)

    def _host_answer(self, frame: runtime_pb2.ClientFrame) -> None:
        content = None
        payload = payload_of(frame, "host_answer")
        if payload is not None:
            try:
                content = self._uploads.begin(frame, "host_answer", payload)
            except ProtocolViolation:
                raise
            except (CenoteError, OSError) as error:
                refusal = runtime_pb2.HostAnswer()
                refusal.error.type, refusal.error.message = "RuntimeError", str(error)
                self._served.relay.answered(self._client, frame.call, refusal, None)
                return
            if content is None:
                return
        self._served.relay.answered(self._client, frame.call, frame.host_answer, content)

    def _resumed(self) -> None:
        self._drained()
        self.go_on()

    # -- calls, one after the other --

    def _add(self, call: Call) -> None:
        self._calls[call.number] = call
        if call.cell is not None:
            self._client.claim(call.key)
        if call.at_once:
            self._carry_out(call)
        else:
            self._waiting.append(call)
            self.go_on()

    def go_on(self) -> None:
        """Carries out what waits, as far as there is room for the answers."""
        while self._waiting and not self._busy and self._has_room(self._waiting[0]):
            self._carry_out(self._waiting.popleft())

    def _carry_out(self, call: Call) -> None:
        self._in_flight += 1
        self._on_the_way += call.carries
        if self._served.at_hand and not call.blocks:
            self._sent(call, call.run)
        else:
            self._busy = self._busy or not call.at_once
            self._served.start(call.run, partial(self._sent_apart, call))

    def _has_room(self, call: Call) -> bool:
        if self.outbox.full or self._in_flight >= MAX_IN_FLIGHT:
            return False
        return not call.carries or self._on_the_way < MAX_CARRIED

    def _sent_apart(self, call: Call, future: asyncio.Future[Frame | None]) -> None:
        self._busy = self._busy and call.at_once
        self._sent(call, future.result)
        self.go_on()

    def _sent(self, call: Call, outcome: Callable[[], Frame | None]) -> None:
        """The call is on its way, or answered, or refused. From now on its outcome owns what it owned."""
        call.dispose = None
        try:
            answer = outcome()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is this call's failure and nobody else's)
            self._settled(call, error)
            return
        if not call.settled and call.number not in self._calls and call.withdraw is not None:
            self._abandon(call)
        if answer is not None:
            self._answer(call, answer)

    def _abandon(self, call: Call) -> None:
        """Its client went, or gave it up, while it was being sent."""
        assert call.withdraw is not None
        if call.withdrawn:
            call.withdraw()
        else:
            self._client.leave_behind(call.key, call.withdraw)

    def _withdraw(self, number: int) -> None:
        call = self._calls.pop(number, None)
        if call is None:
            self._uploads.drop(number)
            self.outbox.forget(number)
            return
        call.withdrawn = True
        if call in self._waiting:
            self._waiting.remove(call)
            _dispose(call)
        else:
            self._mute(call)
            if call.withdraw is not None:
                call.withdraw()

    # -- outcomes --

    def _printed(self, call: Call) -> None:
        if call.number in self._calls and call.cell is not None:
            for output in call.cell.take():
                self.tell(Frame(call=call.number, output=output))

    def _settled(self, call: Call, outcome: Outcome | JailStatus) -> None:
        self._printed(call)
        call.settled = True
        wanted = self._calls.pop(call.number, None) is not None
        self._in_flight -= 1
        if wanted:
            self._on_the_way -= self._report(call, outcome)
        else:
            self._on_the_way -= call.carries
            _discard(outcome)
        self._freed()

    def _answer(self, call: Call, frame: Frame) -> None:
        call.settled = True
        self._in_flight -= 1
        self._on_the_way -= call.carries
        if self._calls.pop(call.number, None) is not None:
            self.tell(frame)
        self._freed()

    def _freed(self) -> None:
        self.go_on()
        if self._finishing:
            self._filled()

    def _report(self, call: Call, outcome: Outcome | JailStatus) -> int:
        """Tells the client. Gives how many contents are not on the way any more."""
        if isinstance(outcome, JailStatus):
            self.tell(Frame(call=call.number, status=from_status(outcome)))
        elif isinstance(outcome, ExecutionResult):
            self.tell(Frame(call=call.number, result=from_result(outcome)))
        elif isinstance(outcome, Exception):
            self.tell(_failure(call.number, outcome))
        elif not isinstance(outcome, ExecutedReply | SharedReply):
            reply, content = from_reply(outcome)
            self.tell(Frame(call=call.number, reply=reply), content)
            if content is not None:
                return 0
        return int(call.carries)

    def _carried(self, number: int) -> None:
        """The last chunk of a content is out."""
        if number < FIRST_HOST_CALL:
            self._on_the_way -= 1
            self._freed()

    def _fail(self, number: int, error: Exception) -> None:
        self.tell(_failure(number, error))

    def _keep(self, call: Call, outcome: Outcome) -> None:
        """A sealed value becomes a reference, which waits for its first holder."""
        if not isinstance(outcome, ValueReply) or call.number not in self._calls:
            self._settled(call, outcome)
            return
        origin = self._served.origin(self._client.tenant)
        store = self._served.references

        def put() -> ReferenceRecord:
            return store.put(outcome.content, outcome.info, origin, holder=UNCLAIMED, lease=FIRST_LEASE)

        self._served.apart(put).add_done_callback(partial(self._kept, call))

    def _kept(self, call: Call, future: asyncio.Future[ReferenceRecord]) -> None:
        if (error := future.exception()) is not None:
            self._settled(call, error if isinstance(error, Exception) else UnavailableError(str(error)))
            return
        record = future.result()
        shared = runtime_pb2.Shared(reference=record.id, info=from_info(record.info), size=record.size)
        self._answer(call, Frame(call=call.number, shared=shared))

    # -- the end --

    def close(self) -> None:
        """The stream has ended. What runs goes on for a client that may come back; what waited never ran."""
        self._uploads.close()
        calls, self._calls = list(self._calls.values()), {}
        waiting, self._waiting = list(self._waiting), deque()
        for call in waiting:
            _dispose(call)
        for call in calls:
            self._mute(call)
            if call.withdraw is not None:
                self._client.leave_behind(call.key, call.withdraw)
        self.outbox.close()
        self.end(None)

    def _mute(self, call: Call) -> None:
        if call.cell is not None:
            self._served.hosted.leave(call.key, call.cell)
            if call.cell.mute():
                self._served.hosted.resume()


def _dispose(call: Call) -> None:
    if call.dispose is not None:
        call.dispose()


def _discard(outcome: Outcome | JailStatus) -> None:
    """Nobody takes it, so nobody else closes it."""
    if isinstance(outcome, ValueReply | FileReply):
        outcome.content.close()


def _failure(number: int, error: Exception) -> Frame:
    if isinstance(error, OSError):
        error = UnavailableError(f"the server cannot have what this takes: {error}")
    if not isinstance(error, CenoteError):
        _log.error("a call failed", exc_info=error)
        error = CenoteError("the server failed at this call; its log says how")
    return Frame(call=number, failure=to_failure(error))
