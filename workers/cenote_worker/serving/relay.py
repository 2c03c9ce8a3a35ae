"""Forwards a jail's host calls to the client whose function they call, and the answers back.

A jail knows references to values by numbers; the relay holds each reference for as long as the jail has it.
"""

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

from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import CenoteError, UnknownReferenceError
from cenote_worker.execution.results import HostFailure, VariableInfo
from cenote_worker.runtime.injection import Injection
from cenote_worker.serving.limits import FIRST_HOST_CALL, MAX_ARGUMENTS
from cenote_worker.serving.references import HeldReference, ReferenceOrigin, ReferenceRecord, SharedValueStore
from cenote_worker.supervisor.channels.host_calls import (
    MAX_ERROR,
    MAX_PENDING,
    HostAnswer,
    HostCall,
    HostCallChannel,
    HostReference,
    to_failure,
)
from cenote_worker.supervisor.frame_parser import read_info
from cenote_worker.transport.content import Content
from cenote_worker.wire.chunking import announce
from cenote_worker.wire.results import from_info


class OfferingClient(Protocol):
    """A client that may have offered functions and objects."""

    @property
    def id(self) -> str: ...

    @property
    def tenant(self) -> str: ...

    @property
    def full(self) -> bool:
        """Whether it does not keep up with the frames sent to it."""

    def forget(self, call: int) -> None:
        """Drops the rest of the content of this call."""

    def tell(self, frame: runtime_pb2.ServerFrame, content: Content | None = None) -> None:
        """Sends a frame if the client is connected. Takes the content over."""


class RelayedRuntime(Protocol):
    """One served runtime."""

    @property
    def id(self) -> str: ...

    @property
    def step(self) -> int: ...

    @property
    def references(self) -> SharedValueStore: ...

    def client(self, client: str) -> OfferingClient | None:
        """The client of this id, unless it has gone for good."""

    def only_client(self) -> OfferingClient | None:
        """The client, if there is exactly one."""

    def soon(self, callback: Callable[..., None], *arguments: object) -> None:
        """From any thread: runs the callback on the server's loop."""

    def apart(self, work: Callable[[], object]) -> object:
        """From the loop: runs work that may block on a thread. The work raises nothing."""


def holders_of(runtime: str) -> str:
    """The common prefix of the holder names of this runtime's relay, and of its former relays."""
    return f"runtime {runtime} "


NUMBER_BITS: Final = 60
"""Bits of the first number: the numbers up to 2^64 never run out.

It is random, since a relay may replace another whose process was killed: its clients still work on calls of that
one, and its jail has handles of it. A number that is used twice would be taken for the same thing.
"""

_HOLDER: Final = re.compile("runtime [^ ]+ handle (?P<number>[0-9]+) (?P<client>.*)", re.DOTALL)

_MAX_TOLD: Final = 64
"""Bytes of a client's id in the name of a holder, which is short. Our ids have fewer."""


@dataclass(frozen=True, slots=True)
class Handle:
    """A reference in a jail. client: the id of the client that gave it; empty where it is not known any more."""

    reference: str
    tenant: str
    client: str


class Handles:
    """The handles of one served runtime. Each holds its reference for as long as the jail has it."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1 + secrets.randbits(NUMBER_BITS))
        self._handles: dict[int, Handle] = {}
        self._dropped: set[int] = set()
        """Handles that the jail dropped and the loop has not released yet, or could not while unbound."""

    def take_up(self, held: HeldReference) -> bool:
        """Takes over a handle of a former relay, whose process was killed. False for anything but a handle."""
        found = _HOLDER.fullmatch(held.holder)
        if found is not None:
            self._handles[int(found["number"])] = Handle(held.reference, held.tenant, found["client"])
        return found is not None

    def get(self, number: int) -> Handle | None:
        return self._handles.get(number)

    # -- on a thread --

    def hand_out(self, place: RelayedRuntime, reference: str, client: OfferingClient) -> HostReference:
        """Gives the jail a reference of the client. Raises UnknownReferenceError, UnavailableError."""
        number = next(self._numbers)
        holder = _holder(place, number, _told(client))
        record = place.references.hold(reference, client.tenant, holder=holder, lease=math.inf)
        return self._handed_out(number, record, client)

    def keep(
        self, place: RelayedRuntime, content: Content, info: VariableInfo, client: OfferingClient
    ) -> HostReference:
        """Makes a reference of a value that the client has sent along. Raises UnavailableError."""
        number = next(self._numbers)
        holder = _holder(place, number, _told(client))
        origin = ReferenceOrigin(tenant=client.tenant, runtime=place.id, step=place.step)
        told = replace(info, size=content.size)
        record = place.references.put(content, told, origin, holder=holder, lease=math.inf)
        return self._handed_out(number, record, client)

    def _handed_out(self, number: int, record: ReferenceRecord, client: OfferingClient) -> HostReference:
        self._handles[number] = Handle(record.id, client.tenant, _told(client))
        return HostReference(number, record.info)

    # -- what the jail drops, on the reactor's thread --

    def drop(self, number: int) -> bool:
        """Whether there is something to release now: a jail may send any number, any number of times."""
        if number not in self._handles or number in self._dropped:
            return False
        self._dropped.add(number)
        return True

    # -- on the loop --

    def release_dropped(self, place: RelayedRuntime) -> None:
        """Releases the handles that the jail has dropped."""
        for number in list(self._dropped):
            self.release(place, number)

    def release_all(self, place: RelayedRuntime) -> None:
        """The jail has ended: releases all handles."""
        for number in list(self._handles):
            self.release(place, number)

    def release(self, place: RelayedRuntime, number: int) -> None:
        handle = self._handles.pop(number, None)
        self._dropped.discard(number)
        if handle is None:
            return
        let_go(place, handle.reference, handle.tenant, _holder(place, number, handle.client))
        client = place.client(handle.client)
        if client is not None:
            told = make(runtime_pb2.ReferenceDropped, reference=handle.reference)
            client.tell(runtime_pb2.ServerFrame(reference_dropped=told))


def let_go(place: RelayedRuntime, reference: str, tenant: str, holder: str) -> None:
    """From the loop: releases a reference that the holder no longer needs."""
    store = place.references

    def release() -> None:
        with suppress(UnknownReferenceError):
            store.release(reference, tenant, holder=holder)

    place.apart(release)


def _holder(place: RelayedRuntime, number: int, client: str) -> str:
    return f"{holders_of(place.id)}handle {number} {client}"


def _told(client: OfferingClient) -> str:
    """The part of a holder's name that identifies the client."""
    return client.id if len(client.id.encode()) <= _MAX_TOLD else ""


@dataclass(slots=True, eq=False)
class PendingHostCall:
    """A host call that waits for its answer. client: the function's owner. value: the sealed value it passes."""

    number: int
    line: HostCallChannel
    call: HostCall
    client: OfferingClient
    value: ReferenceRecord | None = None


class HostRelay:
    """The HostHandler of one served runtime. A client that reconnects receives unanswered calls again."""

    def __init__(self) -> None:
        self._place: RelayedRuntime | None = None
        self._open = False
        self._numbers = itertools.count(FIRST_HOST_CALL + secrets.randbits(NUMBER_BITS))
        self._owners: dict[str, str] = {}
        self._asked: dict[int, PendingHostCall] = {}
        self._unsent: dict[int, PendingHostCall] = {}
        """Calls that wait for a client that does not keep up."""
        self._counting = threading.Lock()
        self._held = self._inline = 0
        """Number of pending calls, and their inline bytes, from their arrival on the reactor's thread."""
        self._handles = Handles()

    def bind(self, place: RelayedRuntime) -> None:
        """Binds the runtime: calls arrive from now on."""
        self._place = place
        self._open = True
        place.soon(self._handles.release_dropped, place)

    def take_up(self, held: HeldReference) -> bool:
        """Before `bind`: takes over a value held by a former relay, whose process was killed. False if not needed."""
        return self._handles.take_up(held)

    # -- HostHandler, on the reactor's thread --

    def call(self, line: HostCallChannel, call: HostCall) -> None:
        if self._place is None or not self._open:
            call.close()
            line.answer(call.id, HostFailure("RuntimeError", "no client serves this runtime"))
        elif not self._admits(call):
            call.close()
            line.answer(call.id, _TOO_MUCH)
        else:
            self._place.soon(self._call, line, call)

    def _admits(self, call: HostCall) -> bool:
        """Limits calls before they reach the loop: a jail may call, and cancel, faster than the loop runs."""
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

    # -- frames of clients, on the loop --

    def offered(self, injection: Injection) -> None:
        """The injection was made: its stubs in the namespace call objects of its client."""
        if injection.client:
            addresses = (host.address or host.name for host in injection.hosts)
            self._owners.update(dict.fromkeys(addresses, injection.client))

    def returned(self, client: OfferingClient) -> None:
        """The client has reconnected: sends it the unanswered calls again."""
        for asked in [asked for asked in self._asked.values() if asked.client.id == client.id]:
            asked.client = client
            self._send(asked)

    def drained(self, client: OfferingClient) -> None:
        """The client keeps up again: sends it the waiting calls."""
        for asked in [asked for asked in self._unsent.values() if asked.client is client]:
            if client.full:
                return
            self._send(asked)

    def gone(self, client: OfferingClient) -> None:
        """The client does not come back."""
        for asked in [asked for asked in self._asked.values() if asked.client is client]:
            self._settle(asked, _failed(_gone(asked.call.target)))

    def answered(
        self, client: OfferingClient, number: int, answer: runtime_pb2.HostAnswer, content: Content | None
    ) -> None:
        """Takes the content over. An answer to a call that is not pending any more is dropped."""
        asked = self._asked.get(number)
        if asked is None or asked.client is not client:
            if content is not None:
                content.close()
        else:
            self._settle(asked, lambda: self._made(client, answer, content))
        client.tell(runtime_pb2.ServerFrame(call=number, host_answered=runtime_pb2.HostAnswered()))

    def close(self) -> None:
        """The runtime is not served any more; its jail may go on."""
        self._open = False
        self._ended()

    # -- on the loop --

    def _call(self, line: HostCallChannel, call: HostCall) -> None:
        assert self._place is not None
        client = self._owner(self._place, call.target)
        if client is None:
            self._dismiss(call)
            self._place.apart(lambda: line.answer(call.id, _gone(call.target)))
            return
        asked = PendingHostCall(next(self._numbers), line, call, client)
        self._asked[asked.number] = asked
        if call.opaque is None and not call.reference:
            self._send(asked)
        else:
            self._place.apart(lambda: self._pass_on(asked))

    def _owner(self, place: RelayedRuntime, target: str) -> OfferingClient | None:
        """The owner of the function. A call of an unknown function goes to the only client, which refuses it if it
        did not offer it: its injection may have been running while another process took over the runtime.
        """
        owner = self._owners.get(target)
        return place.only_client() if owner is None else place.client(owner)

    def _pass_on(self, asked: PendingHostCall) -> None:
        """On a thread: makes the value that the call passes a reference that its client can name."""
        assert self._place is not None
        store, tenant = self._place.references, asked.client.tenant
        try:
            if asked.call.opaque is not None:
                content = asked.call.opaque.duplicate()
                info = asked.call.info or VariableInfo(name="", type="object")
                info = replace(info, size=content.size)
                origin = ReferenceOrigin(tenant=tenant, runtime=self._place.id, step=self._place.step)
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

    def _passed_on(self, asked: PendingHostCall) -> None:
        if asked.number in self._asked:
            self._send(asked)
        else:
            self._let_go(asked)

    def _send(self, asked: PendingHostCall) -> None:
        if asked.client.full:
            # A frame cannot be taken back once it was sent, and a jail may call and cancel without end.
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

    def _settle(self, asked: PendingHostCall, made: Callable[[], HostAnswer]) -> None:
        """Answers the jail, on a thread: the jail may be slow to take the answer."""
        assert self._place is not None
        if self._forget(asked):
            self._place.apart(lambda: asked.line.answer(asked.call.id, _made(made)))

    def _made(
        self, client: OfferingClient, answer: runtime_pb2.HostAnswer, content: Content | None
    ) -> HostAnswer:
        """The answer for the jail. On a thread. Raises UnknownReferenceError, UnavailableError."""
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

    def _call_holder(self, asked: PendingHostCall) -> str:
        assert self._place is not None
        return f"{holders_of(self._place.id)}call {asked.number}"

    def _cancel(self, call_id: int) -> None:
        for asked in [asked for asked in self._asked.values() if asked.call.id == call_id]:
            self._cancelled(asked)

    def _cancelled(self, asked: PendingHostCall) -> None:
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

    def _forget(self, asked: PendingHostCall) -> bool:
        """Removes a pending call. True the first time."""
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

    def _let_go(self, asked: PendingHostCall) -> None:
        assert self._place is not None
        if (value := asked.value) is not None:
            let_go(self._place, value.id, value.origin.tenant, self._call_holder(asked))


_TOO_MUCH = HostFailure(
    "RuntimeError",
    f"over {MAX_ARGUMENTS} bytes of arguments wait with host calls, or over {MAX_PENDING} calls",
)


def _gone(target: str) -> HostFailure:
    return HostFailure(
        "RuntimeError", f"the client that offered {target} has gone; the call is not carried out"
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
