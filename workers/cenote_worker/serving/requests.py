"""What each call of a client means to its runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import JailLostError, UsageError
from cenote_security.printable import printable
from cenote_worker.checkpoints.errors import carried_out
from cenote_worker.content import Content
from cenote_worker.history.bounds import MAX_CAUSE
from cenote_worker.history.messages import from_history
from cenote_worker.hosted.files import FileAsk
from cenote_worker.hosted.injection import Injection
from cenote_worker.hosted.keyed_call import RequestKey
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.hosted.value_forms import Written, sealed
from cenote_worker.results import JailStatus, OnError, SnapshotInfo
from cenote_worker.serving.answers import Answer
from cenote_worker.serving.calls import Call, unnamed
from cenote_worker.serving.client import Client
from cenote_worker.serving.edge import most_of_a_file
from cenote_worker.serving.listeners import CellListener, ReplyListener
from cenote_worker.serving.patch_requests import one_code
from cenote_worker.serving.served import ServedRuntime
from cenote_worker.serving.storing import Store, store
from cenote_worker.supervisor.edge import DoneReply
from cenote_worker.supervisor.protocol import Ask
from cenote_worker.supervisor.requests import Outcome
from cenote_worker.wire.results import from_decisions

_FILE_ASKS: Final[Mapping[jail_pb2.FileRequest.Operation.ValueType, Ask]] = {
    jail_pb2.FileRequest.LIST: Ask.LOOK_UP_FILES,
    jail_pb2.FileRequest.STAT: Ask.LOOK_UP_FILES,
    jail_pb2.FileRequest.READ: Ask.READ_FILE,
    jail_pb2.FileRequest.WRITE: Ask.CHANGE_FILE,
    jail_pb2.FileRequest.DELETE: Ask.CHANGE_FILE,
}

Settled = Callable[[Call, Answer], None]


@dataclass(frozen=True, slots=True)
class Requests:
    """Of one stream. token: id of the one that it was opened with.

    settled: called on the loop with a call and its outcome. printed: a cell has output to take. beside: see
    ClientFrame: then values, files and history are its own.
    """

    served: ServedRuntime
    client: Client
    token: str
    settled: Settled
    printed: Callable[[Call], None]
    beside: HostedRuntime | None = None

    def cell(self, frame: runtime_pb2.ClientFrame, content: Content) -> Call:
        hosted, cell = self.client.hosted, frame.cell
        code = one_code(content)
        on_error: OnError = "rollback" if cell.atomic else "keep"
        entry = self.served.books.cell(code, self.token)

        def run() -> None:
            # It was running once, wherever: it must not begin anew where nothing is known of it.
            if cell.heard:
                call.withdraw = hosted.join(key, listener)
            else:
                cause, timeout = cell.cause[:MAX_CAUSE], cell.timeout or None
                with entry:
                    call.withdraw = hosted.execute(
                        code, timeout, listener, key, cause=cause, entry=entry, on_error=on_error
                    )

        call = Call(number=frame.call, key=frame.key or unnamed(), run=run)
        listener = call.cell = self._cell_listener(call, cell.heard)
        key = RequestKey(text=call.key, heard=cell.heard, missed=listener.missed)
        return call

    def injection(self, frame: runtime_pb2.ClientFrame, content: Content | None) -> Call:
        """content: the values, taken over; None where they are a reference's."""
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

        call = Call(number=frame.call, key=frame.key, run=run, blocks=is_elsewhere)
        call.dispose = content.close if content is not None else None
        return call

    def _injected(self, injection: Injection, outcome: Outcome) -> None:
        """Whether or not anybody still waits for it."""
        if isinstance(outcome, DoneReply):
            self.served.relay.offered(injection)

    def fetch(self, frame: runtime_pb2.ClientFrame) -> Call:
        fetch, hosted = frame.fetch, self.beside or self.client.hosted
        written = Written(fetch.form, fetch.most)

        def run() -> None:
            hosted.fetch(fetch.name, self._listener(call), opaque=fetch.opaque, written=written)

        call = Call(number=frame.call, run=run, carries=True)
        return call

    def share(self, frame: runtime_pb2.ClientFrame, keep: Callable[[Call, Outcome], None]) -> Call:
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

        call = Call(number=frame.call, run=run, carries=True)
        return call

    def deletion(self, frame: runtime_pb2.ClientFrame, name: str) -> Call:
        def run() -> None:
            self.client.hosted.delete(name, self._listener(call), key=_key(frame))

        call = Call(number=frame.call, key=frame.key, run=run)
        return call

    def description(self, frame: runtime_pb2.ClientFrame) -> Call:
        hosted = self.beside or self.client.hosted
        call = Call(number=frame.call, run=lambda: hosted.describe(self._listener(call)))
        return call

    def file(self, frame: runtime_pb2.ClientFrame, content: Content | None) -> Call:
        """content: of a file to be written, taken over."""
        ask, hosted = self._file_ask(frame.file, content), self.beside or self.client.hosted

        def run() -> None:
            hosted.file(ask, self._listener(call), key=_key(frame) if changes else None)

        changes = ask.ask is Ask.CHANGE_FILE
        call = Call(number=frame.call, key=frame.key, run=run, carries=ask.ask is Ask.READ_FILE)
        call.dispose = ask.close
        return call

    def _file_ask(self, request: jail_pb2.FileRequest, content: Content | None) -> FileAsk:
        kind = _FILE_ASKS.get(request.operation)
        if kind is None:
            raise UsageError(f"there is no file operation {request.operation}")
        message = jail_pb2.FileRequest()
        message.CopyFrom(request)
        message.ClearField("content")
        if kind is Ask.READ_FILE:
            message.limit = min(request.limit, most_of_a_file(self.served.hosted.policy))
        return FileAsk(kind, message, printable(request.path.decode("utf-8", "backslashreplace")), content)

    def start(self, frame: runtime_pb2.ClientFrame) -> Call:
        hosted = self.client.hosted

        def run() -> runtime_pb2.ServerFrame:
            hosted.start()
            started = make(runtime_pb2.Started, isolation=hosted.isolation, limits=hosted.limits)
            return runtime_pb2.ServerFrame(call=frame.call, started=started)

        return Call(number=frame.call, run=run)

    def status(self, frame: runtime_pb2.ClientFrame) -> Call:
        def answer(status: JailStatus | None) -> None:
            self._tell(call, _ended() if status is None else status)

        call = Call(number=frame.call, run=lambda: self.client.hosted.status(answer), at_once=True)
        return call

    def snapshots(self, frame: runtime_pb2.ClientFrame) -> Call:
        def answer(kept: tuple[SnapshotInfo, ...] | None) -> None:
            self._tell(call, _ended() if kept is None else kept)

        call = Call(number=frame.call, run=lambda: self.client.hosted.snapshots(answer), at_once=True)
        return call

    def _tell(self, call: Call, answer: Answer) -> None:
        """From any thread."""
        self.served.soon(self.settled, call, answer)

    def storing(self, frame: runtime_pb2.ClientFrame, work: Store) -> Call:
        def run() -> None:
            store(self.served, work, partial(self._tell, call))

        call = Call(number=frame.call, run=run)
        return call

    def snapshot(self, frame: runtime_pb2.ClientFrame) -> Call:
        def run() -> None:
            self.client.hosted.snapshot(frame.snapshot.label, self._listener(call), _key(frame))

        call = Call(number=frame.call, key=frame.key, run=run)
        return call

    def rollback(self, frame: runtime_pb2.ClientFrame) -> Call:
        target = frame.roll_back
        to = target.label if target.WhichOneof("target") == "label" else target.step

        def run() -> None:
            self.client.hosted.rollback(to, self._listener(call), _key(frame))

        call = Call(number=frame.call, key=frame.key, run=run)
        return call

    def outcome(self, frame: runtime_pb2.ClientFrame) -> Call:
        """Of a call that may have been a cell, or not."""

        def run() -> None:
            self.client.hosted.join(RequestKey(text=frame.outcome.key, missed=listener.missed), listener)

        call = Call(number=frame.call, key=frame.outcome.key, run=run)
        listener = call.cell = self._cell_listener(call, heard=0)
        return call

    def reset(self, frame: runtime_pb2.ClientFrame) -> Call:
        refill = self.served.hosted.refill

        def run() -> runtime_pb2.ServerFrame:
            self.client.hosted.reset()
            with carried_out(None):
                refill.began_anew()
            return runtime_pb2.ServerFrame(call=frame.call, reply=jail_pb2.Reply(done=jail_pb2.Done()))

        return Call(number=frame.call, run=run, at_once=True, blocks=lambda: refill.stores)

    def network_log(self, frame: runtime_pb2.ClientFrame) -> Call:
        def run() -> runtime_pb2.ServerFrame:
            log = from_decisions(self.client.hosted.network_log)
            return runtime_pb2.ServerFrame(call=frame.call, network_log=log)

        return Call(number=frame.call, run=run, at_once=True)

    def history(self, frame: runtime_pb2.ClientFrame) -> Call:
        def run() -> runtime_pb2.ServerFrame:
            excerpt = from_history((self.beside or self.served.hosted).history, frame.history.after)
            return runtime_pb2.ServerFrame(call=frame.call, history=excerpt)

        return Call(number=frame.call, run=run, at_once=True)

    def _cell_listener(self, call: Call, heard: int) -> CellListener:
        return CellListener(
            self.served.loop,
            lambda: self.printed(call),
            lambda outcome: self.settled(call, outcome),
            heard,
        )

    def _listener(
        self, call: Call, first: Callable[[Outcome], None] = lambda _outcome: None
    ) -> ReplyListener:
        def settled(outcome: Outcome) -> None:
            first(outcome)
            self.settled(call, outcome)

        return ReplyListener(self.served.loop, settled)


def _ended() -> JailLostError:
    return JailLostError("it ended before it could be asked")


def _key(frame: runtime_pb2.ClientFrame) -> RequestKey | None:
    return RequestKey(text=frame.key) if frame.key else None
