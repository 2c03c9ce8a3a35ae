"""Translates each call of a client to its runtime.

A state is stored, or a runtime hibernated, on a separate thread, one per runtime: the jail determines how long that
takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import JailLostError, UnavailableError, UsageError
from cenote_security.printable import printable
from cenote_worker.checkpoints.errors import carried_out
from cenote_worker.checkpoints.store import CheckpointInfo
from cenote_worker.execution.results import JailStatus, LiveOutput, OnError, SnapshotInfo
from cenote_worker.history.bounds import MAX_CAUSE
from cenote_worker.history.messages import from_history
from cenote_worker.process.threads import begin_thread
from cenote_worker.runtime.injection import Injection
from cenote_worker.runtime.jail_requests import WorkdirRequest, WrittenForm, sealed
from cenote_worker.runtime.keyed_requests import RequestKey
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.checkpoints import Checkpoints
from cenote_worker.serving.calls.call_parser import most_of_a_file
from cenote_worker.serving.calls.call_queue import Answer, QueuedCall, unnamed_key
from cenote_worker.serving.calls.history_requests import one_code
from cenote_worker.serving.listeners import CellListener, ReplyListener
from cenote_worker.serving.served_runtime import Client, ServedRuntime
from cenote_worker.supervisor.frame_parser import DoneReply
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.requests import Outcome
from cenote_worker.transport.content import Content
from cenote_worker.wire.results import from_decisions

Store = Callable[[Checkpoints], CheckpointInfo]
"""An operation on the stored states; blocks."""


def put_to_sleep(states: Checkpoints) -> CheckpointInfo:
    """A Store that hibernates the runtime. No call is lost by it: see StateSource.rest."""
    states.rest()
    return states.last()


def target_of(message: runtime_pb2.GoBackTo) -> int | str:
    """The number or label of the checkpoint."""
    return message.label if message.WhichOneof("target") == "label" else message.number


def store(served: ServedRuntime, work: Store, told: Callable[[Answer], None]) -> None:
    """Begins the operation. told: called with the answer, on any thread.

    Raises UsageError for a runtime without stored states, UnavailableError while one is running for another client,
    and while a patch is applied: the intermediate state must not be stored.
    """
    if served.hosted.patches.busy:
        raise UnavailableError("a patch or build of this runtime is under way; try again behind it")
    states = served.hosted.refill
    if not isinstance(states, Checkpoints):
        raise UsageError(
            "nothing of this runtime is stored; make one whose states are: platform.runtime(NAME, durable=True), or "
            "`cenote runtime create NAME --durable`"
        )
    if not served.storing.acquire(blocking=False):
        raise UnavailableError("the state of this runtime is being stored; try again when that is done")
    try:
        begin_thread("cenote-store", partial(_carry_out, served, states, work, told))
    except UnavailableError:
        served.storing.release()
        raise


def _carry_out(
    served: ServedRuntime, states: Checkpoints, work: Store, told: Callable[[Answer], None]
) -> None:
    answer: Answer
    try:
        answer = work(states)
    except Exception as error:  # noqa: BLE001  (any error is reported to the client)
        answer = error
    finally:
        served.storing.release()
    told(answer)


_FILE_ASKS: Final[Mapping[jail_pb2.FileRequest.Operation.ValueType, RequestKind]] = {
    jail_pb2.FileRequest.LIST: RequestKind.LOOK_UP_FILES,
    jail_pb2.FileRequest.STAT: RequestKind.LOOK_UP_FILES,
    jail_pb2.FileRequest.READ: RequestKind.READ_FILE,
    jail_pb2.FileRequest.WRITE: RequestKind.CHANGE_FILE,
    jail_pb2.FileRequest.DELETE: RequestKind.CHANGE_FILE,
}

Settled = Callable[[QueuedCall, Answer], None]


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one stream. token: id of the token that it was opened with.

    settled: called on the loop with a call and its outcome. printed: a cell has output to take. beside: see
    ClientFrame; it then has its own values, files and history.
    """

    served: ServedRuntime
    client: Client
    token: str
    settled: Settled
    printed: Callable[[QueuedCall], None]
    beside: HostedRuntime | None = None

    def cell(self, frame: runtime_pb2.ClientFrame, content: Content) -> QueuedCall:
        hosted, cell = self.client.hosted, frame.cell
        code = one_code(content)
        on_error: OnError = "rollback" if cell.atomic else "keep"
        entry = self.served.books.cell(code, self.token)

        def run() -> None:
            # It ran before, here or elsewhere: it must not begin anew where nothing is known of it.
            if cell.heard:
                call.withdraw = hosted.join(key, listener)
            else:
                cause, timeout = cell.cause[:MAX_CAUSE], cell.timeout or None
                with entry:
                    call.withdraw = hosted.execute(
                        code, timeout, listener, key, cause=cause, entry=entry, on_error=on_error
                    )

        call = QueuedCall(number=frame.call, key=frame.key or unnamed_key(), run=run)
        listener = call.cell = self._cell_listener(call, cell.heard)
        key = RequestKey(text=call.key, heard=cell.heard, missed=listener.missed)
        return call

    def injection(self, frame: runtime_pb2.ClientFrame, content: Content | None) -> QueuedCall:
        """content: the values, taken over; None for the value of a reference."""
        message, served, values = frame.injection, self.served, content
        has_form = message.form != jail_pb2.PYTHON_VALUE

        def is_elsewhere() -> bool:
            nonlocal values
            if values is None:
                values = served.references.content_here(message.reference, self.client.tenant)
            return values is None or (has_form and values.memory is not None)  # it is copied first

        def run() -> None:
            nonlocal values
            if values is None:
                values = served.references.content(message.reference, self.client.tenant)
            if has_form:
                values = sealed(message.form, values)
            injection = Injection(
                values=values,
                single=message.name,
                replaces=message.name if has_form and message.replace else message.replaces,
                names=(message.name,) if has_form else tuple(message.names),
                hosts=tuple(message.hosts),
                client=self.client.id,
            )
            listener = self._listener(call, lambda outcome: self._injected(injection, outcome))
            try:
                self.client.hosted.inject(injection, listener, replace=message.replace, key=_key(frame))
            except BaseException:
                injection.close()
                raise

        call = QueuedCall(number=frame.call, key=frame.key, run=run, blocks=is_elsewhere)
        call.dispose = content.close if content is not None else None
        return call

    def _injected(self, injection: Injection, outcome: Outcome) -> None:
        """Called even if no client waits for the outcome any more."""
        if isinstance(outcome, DoneReply):
            self.served.relay.offered(injection)

    def fetch(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        fetch, hosted = frame.fetch, self.beside or self.client.hosted
        written = WrittenForm(fetch.form, fetch.most)

        def run() -> None:
            hosted.fetch(fetch.name, self._listener(call), opaque=fetch.opaque, written=written)

        call = QueuedCall(number=frame.call, run=run, carries=True)
        return call

    def share(
        self, frame: runtime_pb2.ClientFrame, keep: Callable[[QueuedCall, Outcome], None]
    ) -> QueuedCall:
        """keep: called with the sealed value instead of `settled`."""

        def run() -> None:
            listener = ReplyListener(self.served.loop, lambda outcome: keep(call, outcome))
            share, hosted = frame.share, self.client.hosted
            if not (share.together or share.states):
                hosted.fetch(share.name, listener, opaque=True)
            elif isinstance(hosted, HostedRuntime):
                hosted.fetch_together(share.together, share.states, listener)
            else:
                raise UsageError("only the owner of a runtime merges it, not an author who is attached")

        call = QueuedCall(number=frame.call, run=run, carries=True)
        return call

    def deletion(self, frame: runtime_pb2.ClientFrame, name: str) -> QueuedCall:
        def run() -> None:
            self.client.hosted.delete(name, self._listener(call), key=_key(frame))

        call = QueuedCall(number=frame.call, key=frame.key, run=run)
        return call

    def description(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        hosted = self.beside or self.client.hosted
        call = QueuedCall(number=frame.call, run=lambda: hosted.describe(self._listener(call)))
        return call

    def file(self, frame: runtime_pb2.ClientFrame, content: Content | None) -> QueuedCall:
        """content: for a file to be written, taken over."""
        ask, hosted = self._file_ask(frame.file, content), self.beside or self.client.hosted

        def run() -> None:
            hosted.file(ask, self._listener(call), key=_key(frame) if changes else None)

        changes = ask.ask is RequestKind.CHANGE_FILE
        call = QueuedCall(number=frame.call, key=frame.key, run=run, carries=ask.ask is RequestKind.READ_FILE)
        call.dispose = ask.close
        return call

    def _file_ask(self, request: jail_pb2.FileRequest, content: Content | None) -> WorkdirRequest:
        kind = _FILE_ASKS.get(request.operation)
        if kind is None:
            raise UsageError(f"there is no file operation {request.operation}")
        message = jail_pb2.FileRequest()
        message.CopyFrom(request)
        message.ClearField("content")
        if kind is RequestKind.READ_FILE:
            message.limit = min(request.limit, most_of_a_file(self.served.hosted.policy))
        return WorkdirRequest(
            kind, message, printable(request.path.decode("utf-8", "backslashreplace")), content
        )

    def start(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        hosted = self.client.hosted

        def run() -> runtime_pb2.ServerFrame:
            hosted.start()
            started = make(runtime_pb2.Started, isolation=hosted.isolation, limits=hosted.limits)
            return runtime_pb2.ServerFrame(call=frame.call, started=started)

        return QueuedCall(number=frame.call, run=run)

    def status(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        def answer(status: JailStatus | None) -> None:
            self._tell(call, _ended() if status is None else status)

        def run() -> None:
            if frame.status.HasField("output_after"):
                seen = frame.status.output_after
                look = LiveOutput(step=seen.step or None, end=seen.position)
                self.client.hosted.live_output(look, partial(self._tell, call))
            else:
                self.client.hosted.status(answer)

        call = QueuedCall(number=frame.call, run=run, at_once=True)
        return call

    def snapshots(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        def answer(kept: tuple[SnapshotInfo, ...] | None) -> None:
            self._tell(call, _ended() if kept is None else kept)

        call = QueuedCall(number=frame.call, run=lambda: self.client.hosted.snapshots(answer), at_once=True)
        return call

    def _tell(self, call: QueuedCall, answer: Answer) -> None:
        """From any thread."""
        self.served.soon(self.settled, call, answer)

    def storing(self, frame: runtime_pb2.ClientFrame, work: Store) -> QueuedCall:
        def run() -> None:
            store(self.served, work, partial(self._tell, call))

        call = QueuedCall(number=frame.call, run=run)
        return call

    def snapshot(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        def run() -> None:
            self.client.hosted.snapshot(frame.snapshot.label, self._listener(call), _key(frame))

        call = QueuedCall(number=frame.call, key=frame.key, run=run)
        return call

    def rollback(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        target = frame.roll_back
        to = target.label if target.WhichOneof("target") == "label" else target.step

        def run() -> None:
            self.client.hosted.rollback(to, self._listener(call), _key(frame))

        call = QueuedCall(number=frame.call, key=frame.key, run=run)
        return call

    def outcome(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        """Requests the outcome of an earlier call, a cell or not."""

        def run() -> None:
            self.client.hosted.join(RequestKey(text=frame.outcome.key, missed=listener.missed), listener)

        call = QueuedCall(number=frame.call, key=frame.outcome.key, run=run)
        listener = call.cell = self._cell_listener(call, heard=0)
        return call

    def reset(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        refill = self.served.hosted.refill

        def run() -> runtime_pb2.ServerFrame:
            self.client.hosted.reset()
            with carried_out(None):
                refill.began_anew()
            return runtime_pb2.ServerFrame(call=frame.call, reply=jail_pb2.Reply(done=jail_pb2.Done()))

        return QueuedCall(number=frame.call, run=run, at_once=True, blocks=lambda: refill.stores)

    def network_log(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        def run() -> runtime_pb2.ServerFrame:
            log = from_decisions(self.client.hosted.network_log)
            return runtime_pb2.ServerFrame(call=frame.call, network_log=log)

        return QueuedCall(number=frame.call, run=run, at_once=True)

    def history(self, frame: runtime_pb2.ClientFrame) -> QueuedCall:
        def run() -> runtime_pb2.ServerFrame:
            excerpt = from_history((self.beside or self.served.hosted).history, frame.history.after)
            return runtime_pb2.ServerFrame(call=frame.call, history=excerpt)

        return QueuedCall(number=frame.call, run=run, at_once=True)

    def _cell_listener(self, call: QueuedCall, heard: int) -> CellListener:
        return CellListener(
            self.served.loop,
            lambda: self.printed(call),
            lambda outcome: self.settled(call, outcome),
            heard,
        )

    def _listener(
        self, call: QueuedCall, first: Callable[[Outcome], None] = lambda _outcome: None
    ) -> ReplyListener:
        def settled(outcome: Outcome) -> None:
            first(outcome)
            self.settled(call, outcome)

        return ReplyListener(self.served.loop, settled)


def _ended() -> JailLostError:
    return JailLostError("it ended before it could be asked")


def _key(frame: runtime_pb2.ClientFrame) -> RequestKey | None:
    return RequestKey(text=frame.key) if frame.key else None
