"""A jail's calls of what its clients offered: to the client whose function it is, and the answer back."""

from __future__ import annotations

import itertools
import math
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from cenote_proto.scalars import utf8_text
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import CenoteError
from cenote_worker.content import Content
from cenote_worker.hosted.injection import Injection
from cenote_worker.results import HostFailure, VariableInfo
from cenote_worker.serving.handles import NUMBER_BITS, Handles, let_go
from cenote_worker.serving.limits import FIRST_HOST_CALL, MAX_ARGUMENTS
from cenote_worker.serving.place import Offerer, Place, holders_of
from cenote_worker.serving.references import Held, Origin, ReferenceRecord
from cenote_worker.supervisor.edge import read_info
from cenote_worker.supervisor.host_line import (
    MAX_ERROR,
    MAX_PENDING,
    HostAnswer,
    HostCall,
    HostLine,
    to_failure,
)
from cenote_worker.wire.contents import announce
from cenote_worker.wire.results import from_info


@dataclass(slots=True, eq=False)
class Asked:
    """A host call that waits for its answer. client: whose function it is. value: the sealed value it passes."""

    number: int
    line: HostLine
    call: HostCall
    client: Offerer
    value: ReferenceRecord | None = None


class HostRelay:
    """The HostHandler of one served runtime. A client that returns hears again what it has not answered."""

    def __init__(self) -> None:
        self._place: Place | None = None
        self._open = False
        self._numbers = itertools.count(FIRST_HOST_CALL + secrets.randbits(NUMBER_BITS))
        self._owners: dict[str, str] = {}
        self._asked: dict[int, Asked] = {}
        self._unsent: dict[int, Asked] = {}
        """Of those, what waits for a client that does not keep up."""
        self._counting = threading.Lock()
        self._held = self._inline = 0
        """Calls that have come, and bytes that came inline with them, from their arrival on the reactor's thread."""
        self._handles = Handles()

    def bind(self, place: Place) -> None:
        """Calls arrive from now on."""
        self._place = place
        self._open = True
        place.soon(self._handles.release_dropped, place)

    def take_up(self, held: Held) -> bool:
        """Before `bind`: what a former relay held, whose process was killed. False for what nobody needs any more."""
        return self._handles.take_up(held)

    # -- HostHandler, on the reactor's thread --

    def call(self, line: HostLine, call: HostCall) -> None:
        if self._place is None or not self._open:
            call.close()
            line.answer(call.id, HostFailure("RuntimeError", "nobody serves this runtime"))
        elif not self._admits(call):
            call.close()
            line.answer(call.id, _TOO_MUCH)
        else:
            self._place.soon(self._call, line, call)

    def _admits(self, call: HostCall) -> bool:
        """Before it waits for the loop: a jail may call, and cancel, faster than that looks."""
        inline = len(call.arguments.inline or b"")
        with self._counting:
            if self._held >= MAX_PENDING or self._inline + inline > MAX_ARGUMENTS:
                return False
            self._held += 1
            self._inline += inline
        return True

    def cancel(self, call_id: int) -> None:
        if self._place is not None:
            self._place.soon(self._cancel, call_id)

    def release(self, reference: int) -> None:
        if self._handles.drop(reference) and self._place is not None:
            self._place.soon(self._handles.release, self._place, reference)

    def ended(self) -> None:
        if self._place is not None:
            self._place.soon(self._ended)

    # -- what clients say, on the loop --

    def offered(self, injection: Injection) -> None:
        """It is in the namespace: its hosts stand there for things of its client."""
        if injection.client:
            addresses = (host.address or host.name for host in injection.hosts)
            self._owners.update(dict.fromkeys(addresses, injection.client))

    def returned(self, client: Offerer) -> None:
        """It has a new line: it hears again what it has not answered."""
        for asked in [asked for asked in self._asked.values() if asked.client.id == client.id]:
            asked.client = client
            self._send(asked)

    def drained(self, client: Offerer) -> None:
        """It has taken much of what it was told."""
        for asked in [asked for asked in self._unsent.values() if asked.client is client]:
            if client.full:
                return
            self._send(asked)

    def gone(self, client: Offerer) -> None:
        """It does not come back."""
        for asked in [asked for asked in self._asked.values() if asked.client is client]:
            self._settle(asked, _failed(_gone(asked.call.target)))

    def answered(
        self, client: Offerer, number: int, answer: runtime_pb2.HostAnswer, content: Content | None
    ) -> None:
        """Takes the content over. An answer to what nobody asks any more is taken and dropped."""
        asked = self._asked.get(number)
        if asked is None or asked.client is not client:
            if content is not None:
                content.close()
        else:
            self._settle(asked, lambda: self._made(client, answer, content))
        client.tell(runtime_pb2.ServerFrame(call=number, host_answered=runtime_pb2.HostAnswered()))

    def close(self) -> None:
        """Nobody serves the runtime any more; its jail may go on."""
        self._open = False
        self._ended()

    # -- on the loop --

    def _call(self, line: HostLine, call: HostCall) -> None:
        assert self._place is not None
        client = self._owner(self._place, call.target)
        if client is None:
            self._dismiss(call)
            self._place.apart(lambda: line.answer(call.id, _gone(call.target)))
            return
        asked = Asked(next(self._numbers), line, call, client)
        self._asked[asked.number] = asked
        if call.opaque is None and not call.reference:
            self._send(asked)
        else:
            self._place.apart(lambda: self._pass_on(asked))

    def _owner(self, place: Place, target: str) -> Offerer | None:
        """Whose function it is. The only client is asked for what nobody is known to have offered, and says itself if
        it has not: an injection under way while the runtime was taken over from another process.
        """
        owner = self._owners.get(target)
        return place.only_client() if owner is None else place.client(owner)

    def _pass_on(self, asked: Asked) -> None:
        """On a thread: what the call passes becomes a reference that its client can name."""
        assert self._place is not None
        store, tenant = self._place.references, asked.client.tenant
        try:
            if asked.call.opaque is not None:
                content = asked.call.opaque.duplicate()
                info = asked.call.info or VariableInfo(name="", type="object")
                info = replace(info, size=content.size)
                origin = Origin(tenant=tenant, runtime=self._place.id, step=self._place.step)
                holder = self._call_holder(asked)
                asked.value = store.put(content, info, origin, holder=holder, lease=math.inf)
            else:
                handle = self._handles.get(asked.call.reference)
                reference = "" if handle is None else handle.reference
                asked.value = store.hold(reference, tenant, holder=self._call_holder(asked), lease=math.inf)
        except (CenoteError, OSError) as error:
            self._place.soon(self._settle, asked, _failed(_failure(error)))
            return
        self._place.soon(self._passed_on, asked)

    def _passed_on(self, asked: Asked) -> None:
        if asked.number in self._asked:
            self._send(asked)
        else:
            self._let_go(asked)

    def _send(self, asked: Asked) -> None:
        if asked.client.full:
            # What is told cannot be taken back, and a jail may call and cancel without an end.
            self._unsent[asked.number] = asked
            return
        self._unsent.pop(asked.number, None)
        frame = runtime_pb2.ServerFrame(call=asked.number)
        call = asked.call
        frame.host_call.target, frame.host_call.method = utf8_text(call.target), utf8_text(call.method)
        frame.host_call.origin = call.id
        follows = announce(frame.host_call.arguments, call.arguments)
        if asked.value is not None:
            frame.host_call.value.reference = utf8_text(asked.value.id)
            frame.host_call.value.info.CopyFrom(from_info(asked.value.info))
            frame.host_call.value.size = asked.value.size
        asked.client.tell(frame, call.arguments.duplicate() if follows else None)

    def _settle(self, asked: Asked, made: Callable[[], HostAnswer]) -> None:
        """Answers the jail, on a thread: it may be slow to take it."""
        assert self._place is not None
        if self._forget(asked):
            self._place.apart(lambda: asked.line.answer(asked.call.id, _made(made)))

    def _made(self, client: Offerer, answer: runtime_pb2.HostAnswer, content: Content | None) -> HostAnswer:
        """On a thread. Raises UnknownReferenceError, UnavailableError."""
        assert self._place is not None
        match answer.WhichOneof("body"):
            case "value":
                assert content is not None
                return content
            case "error":
                return to_failure(answer.error)
            case "sealed":
                return self._place.references.content(answer.sealed, client.tenant)
            case "reference":
                return self._handles.hand_out(self._place, answer.reference, client)
            case "upload":
                assert content is not None
                return self._handles.keep(self._place, content, read_info(answer.upload.info), client)
        return HostFailure("RuntimeError", "the client answered nothing")

    def _call_holder(self, asked: Asked) -> str:
        assert self._place is not None
        return f"{holders_of(self._place.id)}call {asked.number}"

    def _cancel(self, call_id: int) -> None:
        for asked in [asked for asked in self._asked.values() if asked.call.id == call_id]:
            self._cancelled(asked)

    def _cancelled(self, asked: Asked) -> None:
        unsent = asked.number in self._unsent
        self._forget(asked)
        if unsent:
            return
        asked.client.forget(asked.number)
        asked.client.tell(runtime_pb2.ServerFrame(call=asked.number, host_cancel=jail_pb2.HostCancel()))

    def _ended(self) -> None:
        for asked in list(self._asked.values()):
            self._cancelled(asked)
        if self._place is not None:
            self._handles.release_all(self._place)

    def _forget(self, asked: Asked) -> bool:
        """True the first time."""
        if self._asked.pop(asked.number, None) is None:
            return False
        self._unsent.pop(asked.number, None)
        self._dismiss(asked.call)
        self._let_go(asked)
        return True

    def _dismiss(self, call: HostCall) -> None:
        with self._counting:
            self._held -= 1
            self._inline -= len(call.arguments.inline or b"")
        call.close()

    def _let_go(self, asked: Asked) -> None:
        assert self._place is not None
        if (value := asked.value) is not None:
            let_go(self._place, value.id, value.origin.tenant, self._call_holder(asked))


_TOO_MUCH = HostFailure(
    "RuntimeError",
    f"over {MAX_ARGUMENTS} bytes of arguments wait with host calls, or over {MAX_PENDING} calls",
)


def _gone(target: str) -> HostFailure:
    return HostFailure(
        "RuntimeError", f"the client that offered {target} has gone; nobody carries the call out"
    )


def _failed(failure: HostFailure) -> Callable[[], HostAnswer]:
    return lambda: failure


def _made(make: Callable[[], HostAnswer]) -> HostAnswer:
    try:
        return make()
    except (CenoteError, OSError) as error:
        return _failure(error)


def _failure(error: Exception) -> HostFailure:
    kind = "ValueError" if isinstance(error, ValueError) else "RuntimeError"
    return HostFailure(kind, str(error)[:MAX_ERROR])
