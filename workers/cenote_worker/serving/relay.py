"""A jail's calls of what its clients offered: to the client whose function it is, and the answer back."""

from __future__ import annotations

import itertools
import math
import re
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import CenoteError, UnknownReferenceError
from cenote_worker.content import Content
from cenote_worker.hosted.injection import Injection
from cenote_worker.results import VariableInfo
from cenote_worker.serving.limits import FIRST_HOST_CALL, MAX_ARGUMENTS, MAX_HOST_ERROR, MAX_NAME
from cenote_worker.serving.references import Held, Origin, ReferenceRecord, ReferenceStore
from cenote_worker.supervisor.edge import read_info
from cenote_worker.supervisor.host_line import (
    MAX_PENDING,
    HostAnswer,
    HostCall,
    HostFailure,
    HostLine,
    HostReference,
)
from cenote_worker.wire.contents import announce
from cenote_worker.wire.results import from_info

_NUMBER_BITS: Final = 60
"""Of the first number: so many follow it below 2^64 that nobody counts to the end."""

_HANDLE: Final = re.compile("runtime [^ ]+ handle (?P<number>[0-9]+) (?P<client>.*)", re.DOTALL)

_MAX_TOLD: Final = 64
"""Bytes of a client's id that go into the name of a holder, which is short. Ours have fewer."""


class Offerer(Protocol):
    """A client, as the relay sees it."""

    @property
    def id(self) -> str: ...

    @property
    def tenant(self) -> str: ...

    @property
    def full(self) -> bool:
        """It has not taken what it was told."""

    def forget(self, call: int) -> None:
        """Nobody waits for what is left of the content of this call."""

    def tell(self, frame: runtime_pb2.ServerFrame, content: Content | None = None) -> None:
        """Sends a frame if the client has a line. Takes the content over."""


class Place(Protocol):
    """Where the relay works: one served runtime."""

    @property
    def id(self) -> str: ...

    @property
    def step(self) -> int: ...

    @property
    def references(self) -> ReferenceStore: ...

    def client(self, client: str) -> Offerer | None:
        """The client of this id, unless it has gone for good."""

    def only_client(self) -> Offerer | None:
        """The client, if there is exactly one."""

    def soon(self, callback: Callable[..., None], *arguments: object) -> None:
        """From any thread: runs the callback on the server's loop."""

    def apart(self, work: Callable[[], object]) -> object:
        """From the loop: does something that may block on a thread. It raises nothing."""


@dataclass(slots=True, eq=False)
class Asked:
    """A host call that waits for its answer. client: whose function it is. value: the sealed value it passes."""

    number: int
    line: HostLine
    call: HostCall
    client: Offerer
    value: ReferenceRecord | None = None


@dataclass(frozen=True, slots=True)
class _Handle:
    """A reference in a jail. client: the id of who gave it; empty where that is not known any more."""

    reference: str
    tenant: str
    client: str


class HostRelay:
    """The HostHandler of one served runtime. A client that returns hears again what it has not answered."""

    def __init__(self) -> None:
        self._place: Place | None = None
        self._open = False
        # By chance, since a relay may follow another, whose process was killed: its clients still work on calls of
        # that one, and its jail has handles of it. The same number there would be taken for the same thing.
        self._numbers = itertools.count(FIRST_HOST_CALL + secrets.randbits(_NUMBER_BITS))
        self._handle_numbers = itertools.count(1 + secrets.randbits(_NUMBER_BITS))
        self._owners: dict[str, str] = {}
        self._asked: dict[int, Asked] = {}
        self._unsent: dict[int, Asked] = {}
        """Of those, what waits for a client that does not keep up."""
        self._counting = threading.Lock()
        self._held = self._inline = 0
        """Calls that have come, and bytes that came inline with them, from their arrival on the reactor's thread."""
        self._handles: dict[int, _Handle] = {}
        """What the jail has references to, by the numbers that it knows them by."""
        self._dropped: set[int] = set()
        """Of those, what it dropped and the loop has not seen to, or there was no place for."""

    def bind(self, place: Place) -> None:
        """Calls arrive from now on."""
        self._place = place
        self._open = True
        for reference in list(self._dropped):
            place.soon(self._release, reference)

    def take_up(self, held: Held) -> bool:
        """Before `bind`: what a former relay held, whose process was killed. False for what nobody needs any more."""
        found = _HANDLE.fullmatch(held.holder)
        if found is not None:
            self._handles[int(found["number"])] = _Handle(held.reference, held.tenant, found["client"])
        return found is not None

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
        if reference not in self._handles or reference in self._dropped:
            return  # a jail may say anything, as often as it likes
        self._dropped.add(reference)
        if self._place is not None:
            self._place.soon(self._release, reference)

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
                info = VariableInfo(name="", type="object", size=content.size)
                origin = Origin(tenant=tenant, runtime=self._place.id, step=self._place.step)
                holder = self._call_holder(asked)
                asked.value = store.put(content, info, origin, holder=holder, lease=math.inf)
            else:
                handle = self._handles.get(asked.call.reference, _Handle("", tenant, ""))
                holder = self._call_holder(asked)
                asked.value = store.hold(handle.reference, tenant, holder=holder, lease=math.inf)
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
        if (
            asked.client.full
        ):  # what is told cannot be taken back, and a jail may call and cancel without an end
            self._unsent[asked.number] = asked
            return
        self._unsent.pop(asked.number, None)
        frame = runtime_pb2.ServerFrame(call=asked.number)
        call = asked.call
        frame.host_call.target, frame.host_call.method = call.target, call.method
        frame.host_call.origin = call.id
        follows = announce(frame.host_call.arguments, call.arguments)
        if asked.value is not None:
            frame.host_call.value.reference = asked.value.id
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
                return HostFailure(answer.error.type[:MAX_NAME], answer.error.message[:MAX_HOST_ERROR])
            case "sealed":
                return self._place.references.content(answer.sealed, client.tenant)
            case "reference":
                return self._handle(answer.reference, client)
            case "upload":
                assert content is not None
                return self._kept(content, read_info(answer.upload.info), client)
        return HostFailure("RuntimeError", "the client answered nothing")

    def _handle(self, reference: str, client: Offerer) -> HostReference:
        assert self._place is not None
        number = next(self._handle_numbers)
        holder = self._handle_holder(number, _told(client))
        record = self._place.references.hold(reference, client.tenant, holder=holder, lease=math.inf)
        return self._handed_out(number, record, client)

    def _kept(self, content: Content, info: VariableInfo, client: Offerer) -> HostReference:
        """Of a value that the client has sent along."""
        assert self._place is not None
        number = next(self._handle_numbers)
        holder = self._handle_holder(number, _told(client))
        origin = Origin(tenant=client.tenant, runtime=self._place.id, step=self._place.step)
        told = replace(info, size=content.size)
        record = self._place.references.put(content, told, origin, holder=holder, lease=math.inf)
        return self._handed_out(number, record, client)

    def _handed_out(self, number: int, record: ReferenceRecord, client: Offerer) -> HostReference:
        self._handles[number] = _Handle(record.id, client.tenant, _told(client))
        return HostReference(number, record.info)

    def _handle_holder(self, number: int, client: str) -> str:
        assert self._place is not None
        return f"{holders_of(self._place.id)}handle {number} {client}"

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
        for handle in list(self._handles):
            self._release(handle)

    def _release(self, handle: int) -> None:
        assert self._place is not None
        dropped = self._handles.pop(handle, None)
        self._dropped.discard(handle)
        if dropped is None:
            return
        store, reference = self._place.references, dropped.reference
        holder = self._handle_holder(handle, dropped.client)
        self._place.apart(lambda: _release(store, reference, dropped.tenant, holder))
        client = self._place.client(dropped.client)
        if client is not None:
            told = runtime_pb2.ReferenceDropped(reference=reference)
            client.tell(runtime_pb2.ServerFrame(reference_dropped=told))

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
            store, holder = self._place.references, self._call_holder(asked)
            self._place.apart(lambda: _release(store, value.id, value.origin.tenant, holder))


def holders_of(runtime: str) -> str:
    """What the names of all holders begin with that a relay of this runtime has, or a former one had."""
    return f"runtime {runtime} "


def _told(client: Offerer) -> str:
    """What the name of a holder says of whose it is."""
    return client.id if len(client.id.encode()) <= _MAX_TOLD else ""


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
    return HostFailure(kind, str(error)[:MAX_HOST_ERROR])


def _release(store: ReferenceStore, reference: str, tenant: str, holder: str) -> None:
    with suppress(UnknownReferenceError):
        store.release(reference, tenant, holder=holder)
