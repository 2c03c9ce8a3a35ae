"""One stream of one client: its requests, in order, and the answers.

On the server's loop only. The hot path, a cell for an existing jail, goes from the frame to the jail's socket without
another thread; a request that may block goes to a thread, and later requests wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from cenote_proto.scalars import utf8_text
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import (
    CenoteError,
    ProtocolViolation,
    UnavailableError,
)
from cenote_worker.serving.calls.call_parser import RIGHTS, check, payload_of
from cenote_worker.serving.calls.call_queue import (
    Answer,
    CallQueue,
    CallResult,
    QueuedCall,
    answer,
    discard,
    failure,
    shared,
)
from cenote_worker.serving.calls.content_transfer import FrameOutbox, Uploads
from cenote_worker.serving.calls.history_requests import HistoryRequests
from cenote_worker.serving.calls.requests import Requests, put_to_sleep, target_of
from cenote_worker.serving.limits import FIRST_HOST_CALL, MAX_CALLS
from cenote_worker.serving.references import FIRST_LEASE, UNCLAIMED, ReferenceRecord
from cenote_worker.serving.rights import Rights
from cenote_worker.serving.served_runtime import Client, ServedRuntime
from cenote_worker.supervisor.frame_parser import ValueReply
from cenote_worker.supervisor.requests import Outcome
from cenote_worker.transport.content import Content

Frame = runtime_pb2.ServerFrame


class ClientSession:
    """The state of one stream. `over` is set when the stream has to end: with an error, or with None as agreed."""

    def __init__(
        self,
        served: ServedRuntime,
        rights: Rights,
        *,
        filled: Callable[[], None],
        drained: Callable[[], None],
    ) -> None:
        """filled: called when there may be something in the outbox, or nothing left to wait for. drained: called when
        the outbox is not full any more. Call `begin` next.
        """
        self._served = served
        self._rights = rights
        self._filled = filled
        self._drained = drained
        self._finishing = self._leaving = False
        self.outbox = FrameOutbox(filled, self._carried, self._resumed)
        self._turns = CallQueue(served, lambda: self.outbox.full, self._sent)
        self.over: asyncio.Future[CenoteError | None] = served.loop.create_future()
        self._calls: dict[int, QueuedCall] = {}
        self.begun = 0
        """Calls on this stream, answered ones included."""
        self._uploads = Uploads(served.hosted.policy, served.books)

    def begin(self, client: Client) -> None:
        """Call this before the first frame is processed."""
        self._client = client
        self._requests = Requests(self._served, client, self._rights.token, self._settled, self._printed)
        self._histories = HistoryRequests(self._served, client, self._rights.token, self._settled)

    # -- Line --

    def tell(self, frame: Frame, content: Content | None = None) -> None:
        self.outbox.put(frame, content)

    @property
    def full(self) -> bool:
        return self.outbox.full

    def forget(self, call: int) -> None:
        self.outbox.forget(call)

    def end(self, error: CenoteError | None) -> None:
        if not self.over.done():
            self.over.set_result(error)

    def go_on(self) -> None:
        self._turns.go_on()

    def finish(self) -> None:
        """The client sends nothing more; it still receives the answers."""
        self._finishing = True
        self._filled()

    @property
    def finished(self) -> bool:
        """Whether the client sends nothing more, and has all answers."""
        return self._finishing and not self._calls

    @property
    def has_left(self) -> bool:
        """Whether the client has sent Goodbye, and has all answers."""
        return self._leaving and not self._calls

    # -- frames --

    def hear(self, frame: runtime_pb2.ClientFrame) -> None:
        """Processes a frame. Raises ProtocolViolation, which ends the stream. Ignores frames when it is over."""
        if self.over.done():
            return
        match body := frame.WhichOneof("body"):
            case "chunk":
                self._chunk(frame)
            case "heard":
                self._heard(frame)
            case "interrupt":
                self._interrupt()
            case "withdraw":
                self._withdraw(frame.call)
            case "cancel":
                self._cancel(frame.call, now=frame.cancel.now)
            case "host_answer":
                self._host_answer(frame)
            case "end_full_run":
                self._served.full_runs.end(self._client.id, frame.end_full_run.number)
            case "goodbye":
                self._leaving = True
                self.finish()
            case str() if body in RIGHTS:
                self._open(frame, body)
            case _:
                raise ProtocolViolation(f"a frame with {body or 'nothing known'} in it, here")

    def _open(self, frame: runtime_pb2.ClientFrame, body: str) -> None:
        if self._leaving:
            raise ProtocolViolation("a call behind Goodbye")
        self.begun += 1
        if not 0 < frame.call < FIRST_HOST_CALL or frame.call in self._calls or frame.call in self._uploads:
            raise ProtocolViolation("a call has a number below 2^63, unlike any other that waits")
        try:
            self._rights.require(RIGHTS[body])
            self._check_special_rights(frame, body)
            check(frame, body)
            if len(self._calls) + len(self._uploads) >= MAX_CALLS:
                raise UnavailableError(
                    f"{MAX_CALLS} calls of this client wait for their answers already; await some of them first"
                )
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

    def _call(self, frame: runtime_pb2.ClientFrame, body: str, content: Content | None) -> QueuedCall:
        """The call of a complete frame. Takes the content over."""
        requests = self._requests
        if frame.beside:
            requests = replace(requests, beside=self._served.full_runs.of(self._client.id, frame.beside))
        match body:
            case "cell":
                assert content is not None
                return requests.cell(frame, content)
            case "apply":
                assert content is not None
                return self._histories.patch(frame, content)
            case "rehearse":
                assert content is not None
                return self._histories.rehearsal(frame, content)
            case "run_in_full":
                return self._histories.full_run(frame)
            case "build":
                return self._histories.build(frame)
            case "declare":
                return self._histories.declaration(frame)
            case "put_in":
                return self._histories.put_in(frame)
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
            case "history":
                return requests.history(frame)
            case "snapshot":
                return requests.snapshot(frame)
            case "roll_back":
                return requests.rollback(frame)
            case "snapshots":
                return requests.snapshots(frame)
            case "store_state":
                return requests.storing(frame, lambda states: states.make(frame.store_state.label))
            case "go_back_to":
                return requests.storing(frame, lambda states: states.go_back(target_of(frame.go_back_to)))
            case "hibernate":
                return requests.storing(frame, put_to_sleep)
        return requests.status(frame)

    def _heard(self, frame: runtime_pb2.ClientFrame) -> None:
        call = self._calls.get(frame.call)
        if call is not None and call.cell is not None and call.cell.hear(frame.heard.position):
            self._served.hosted.resume()

    def _interrupt(self) -> None:
        """Interrupts the running cell, if it is one of this client's."""
        for call in list(self._calls.values()):
            if call.withdraw is not None:
                call.withdraw(waiting=False)

    def _cancel(self, number: int, *, now: bool) -> None:
        call = self._calls.get(number)
        if call is not None:
            self._served.hosted.patches.cancel(call.key, now=now)
            self._served.full_runs.cancel(call.key)

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
                refusal.error.type, refusal.error.message = "RuntimeError", utf8_text(str(error))
                self._served.relay.answered(self._client, frame.call, refusal, None)
                return
            if content is None:
                return
        self._served.relay.answered(self._client, frame.call, frame.host_answer, content)

    def _resumed(self) -> None:
        self._drained()
        self._turns.go_on()
        self._served.relay.drained(self._client)

    # -- calls, one after the other --

    def _add(self, call: QueuedCall) -> None:
        self._served.used()
        self._calls[call.number] = call
        self._client.claim(call.key)
        self._turns.add(call)

    def _sent(self, call: QueuedCall, result: CallResult) -> None:
        """The call was sent, or answered, or refused. From now on its outcome owns what it owned."""
        call.dispose = None
        try:
            frame = result()
        except Exception as error:  # noqa: BLE001  (any error fails this call only)
            self._settled(call, error)
            return
        if not call.settled and call.number not in self._calls and call.withdraw is not None:
            self._abandon(call)
        if frame is not None:
            self._answer(call, frame)

    def _abandon(self, call: QueuedCall) -> None:
        """The client left, or withdrew the call, while it was being sent."""
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
        elif not self._turns.take_back(call):
            call.withdrawn = True
            self._mute(call)  # only that: its turn ends when the runtime is done with it
            if call.withdraw is not None:
                call.withdraw()

    # -- outcomes --

    def _printed(self, call: QueuedCall) -> None:
        if call.number in self._calls and call.cell is not None:
            for output in call.cell.take():
                self.tell(Frame(call=call.number, output=output))

    def _settled(self, call: QueuedCall, outcome: Answer) -> None:
        self._printed(call)
        content = None
        if call.number in self._calls:
            frame, content = answer(call.number, outcome, self._about)
            self._answer(call, frame, content)
        else:
            discard(outcome)
            self._answer(call, None)

    def _answer(self, call: QueuedCall, frame: Frame | None, content: Content | None = None) -> None:
        """The runtime is done with the call. frame: None if the client does not wait for it."""
        call.settled = True
        self._served.used()
        if self._calls.pop(call.number, None) is not None and frame is not None:
            self.tell(frame, content)
        self._turns.answered(call, carrying=content is not None)
        if self._finishing:
            self._filled()

    def _carried(self, number: int) -> None:
        """The last chunk of a content was sent."""
        if number < FIRST_HOST_CALL:
            self._turns.carried()

    def _fail(self, number: int, error: Exception) -> None:
        self.tell(failure(number, error, self._about))

    @property
    def _about(self) -> dict[str, object]:
        """What a line of the log is about. step: the last one that was begun."""
        return {
            "runtime": self._served.id,
            "tenant": self._client.tenant,
            "step": self._served.hosted.step,
        }

    def _keep(self, call: QueuedCall, outcome: Outcome) -> None:
        """Makes a sealed value a reference, which waits for its first holder."""
        if not isinstance(outcome, ValueReply) or call.number not in self._calls:
            self._settled(call, outcome)
            return
        origin = self._served.origin(self._client.tenant)
        store = self._served.references

        def put() -> ReferenceRecord:
            return store.put(outcome.content, outcome.info, origin, holder=UNCLAIMED, lease=FIRST_LEASE)

        self._served.apart(put).add_done_callback(partial(self._kept, call))

    def _kept(self, call: QueuedCall, future: asyncio.Future[ReferenceRecord]) -> None:
        if (error := future.exception()) is not None:
            self._settled(call, error if isinstance(error, Exception) else UnavailableError(str(error)))
            return
        self._answer(call, shared(call.number, future.result()))

    # -- the end --

    def close(self) -> None:
        """The stream has ended. Running calls go on for a client that may reconnect; waiting calls never run."""
        self._uploads.close()
        self._turns.close()
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            if call.cell is not None:
                self._served.hosted.leave(call.key, call.cell)
            self._mute(call)
            if call.withdraw is not None:
                self._client.leave_behind(call.key, call.withdraw)
        self.outbox.close()
        self.end(None)

    def _mute(self, call: QueuedCall) -> None:
        if call.cell is not None and call.cell.mute():
            self._served.hosted.resume()
