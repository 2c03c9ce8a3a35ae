"""The relay by itself, between a jail's socket and clients that only record what they receive."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterator

import pytest
from tests.waiting import PATIENCE

from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_worker.execution.results import VariableInfo
from cenote_worker.runtime.injection import NOTHING, Injection
from cenote_worker.serving.limits import MAX_ARGUMENTS
from cenote_worker.serving.references import HeldReference, LocalReferences, ReferenceOrigin
from cenote_worker.serving.relay import HostRelay
from cenote_worker.supervisor.channels.host_calls import MAX_CLASS, MAX_ERROR, HostCallChannel
from cenote_worker.transport.content import INLINE_LIMIT, Content

INFO = VariableInfo(name="a", type="int", size=1)
HOME = ReferenceOrigin(tenant="us", runtime="r", step=1)


class Client:
    """Records its frames."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.tenant = "us"
        self.full = False
        self.forgotten: list[int] = []
        self.frames: list[runtime_pb2.ServerFrame] = []

    def tell(self, frame: runtime_pb2.ServerFrame, content: Content | None = None) -> None:
        self.frames.append(frame)
        if content is not None:
            content.close()

    def forget(self, call: int) -> None:
        self.forgotten.append(call)


class Place:
    """One served runtime, with everything on one thread, synchronously."""

    id = "r"
    step = 1

    def __init__(self) -> None:
        self.references = LocalReferences(room=1 << 20)
        self.clients = {"one": Client("one")}
        self.late: list[Callable[[], None]] | None = None
        """What a busy loop has not processed; None for one that processes everything at once."""

    def client(self, client: str) -> Client | None:
        return self.clients.get(client)

    def only_client(self) -> Client | None:
        return next(iter(self.clients.values())) if len(self.clients) == 1 else None

    def soon(self, callback: Callable[..., None], *arguments: object) -> None:
        if self.late is None:
            callback(*arguments)
        else:
            self.late.append(lambda: callback(*arguments))

    def apart(self, work: Callable[[], object]) -> object:
        return work()


class Jail:
    """The jail's end of a host connection."""

    def __init__(self, place: Place | None = None, relay: HostRelay | None = None) -> None:
        self.place, self.relay = place or Place(), relay or HostRelay()
        self.relay.bind(self.place)
        f = jail_pb2.HostTarget(name="f")
        self.relay.offered(Injection(values=NOTHING, hosts=(f,), client="one"))
        ours, self.socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        self.line = HostCallChannel(ours, self.relay, 1 << 20)

    def call(self, number: int, size: int = 1) -> None:
        request = jail_pb2.HostRequest()
        request.call.id, request.call.target = number, "f"
        Content(size=size, count=0, inline=bytes(size)).to_wire(request.call.arguments, [])
        self.socket.send(request.SerializeToString())
        assert self.line.read(100)

    def say(self, request: jail_pb2.HostRequest) -> None:
        self.socket.send(request.SerializeToString())
        assert self.line.read(100)

    def cancel(self, number: int) -> None:
        self.say(jail_pb2.HostRequest(cancel=jail_pb2.HostCancel(id=number)))

    def answered(self) -> jail_pb2.HostReply:
        return jail_pb2.HostReply.FromString(self.socket.recv(100_000))


@pytest.fixture
def jail() -> Iterator[Jail]:
    made = Jail()
    yield made
    made.line.close()
    made.socket.close()


def test_what_waits_is_bounded(jail: Jail) -> None:
    """At the limit a call is passed on; one byte past it, it fails at once; each answer frees space."""
    told = jail.place.clients["one"].frames
    whole, rest = divmod(MAX_ARGUMENTS, INLINE_LIMIT)
    for number in range(whole):
        jail.call(number, INLINE_LIMIT)
    jail.call(whole, rest)
    assert whole + 1 == len(told)
    jail.call(whole + 1)
    assert "arguments wait" in jail.answered().error.message
    error = runtime_pb2.HostAnswer(error=jail_pb2.HostError(type="E"))
    jail.relay.answered(jail.place.clients["one"], told[0].call, error, None)
    assert "E" == jail.answered().error.type
    jail.call(whole + 2)
    assert "host_call" == told[-1].WhichOneof("body")


def test_what_a_busy_loop_has_not_come_to_is_bounded_too(jail: Jail) -> None:
    """A jail calls and cancels faster than its server's loop runs: until it has run, all received calls count."""
    jail.place.late = []
    for number in range(MAX_ARGUMENTS // INLINE_LIMIT):
        jail.call(number, INLINE_LIMIT)
        jail.cancel(number)
    jail.call(10_000, INLINE_LIMIT)
    assert "arguments wait" in jail.answered().error.message
    late, jail.place.late = jail.place.late, None
    for callback in late:
        callback()
    jail.call(10_001, INLINE_LIMIT)
    assert "host_call" == jail.place.clients["one"].frames[-1].WhichOneof("body")


def test_a_client_that_does_not_keep_up_is_told_no_more(jail: Jail) -> None:
    """Calls wait, in order, until it has received the earlier ones; it never receives one that is withdrawn."""
    client = jail.place.clients["one"]
    jail.call(1)
    client.full = True
    for number in (2, 3, 4):
        jail.call(number)
    jail.cancel(3)
    assert [1] == [frame.host_call.origin for frame in client.frames]
    client.full = False
    jail.relay.drained(client)
    assert [1, 2, 4] == [frame.host_call.origin for frame in client.frames]
    jail.cancel(1)
    assert ("host_cancel", [client.frames[0].call]) == (
        client.frames[-1].WhichOneof("body"),
        client.forgotten,
    )


def test_a_jail_drops_what_it_has_once(jail: Jail) -> None:
    """Unknown numbers, and the same one again and again, cause no work for the loop."""
    jail.place.late = []
    for number in (1, 2, 2):
        jail.say(jail_pb2.HostRequest(release=jail_pb2.HostRelease(reference=number)))
    assert [] == jail.place.late
    jail.relay.take_up(HeldReference(reference="r", tenant="us", holder="runtime r handle 7 one"))
    for _ in range(3):
        jail.say(jail_pb2.HostRequest(release=jail_pb2.HostRelease(reference=7)))
    assert 1 == len(jail.place.late)


def test_an_error_is_cut(jail: Jail) -> None:
    """A client's text goes into a packet, and into a traceback."""
    jail.call(1)
    client = jail.place.clients["one"]
    error = jail_pb2.HostError(type="E" * (MAX_CLASS + 1), message="m" * (MAX_ERROR + 1))
    jail.relay.answered(client, client.frames[0].call, runtime_pb2.HostAnswer(error=error), None)
    reply = jail.answered().error
    assert (MAX_CLASS, MAX_ERROR) == (len(reply.type), len(reply.message))


def test_an_answer_with_nothing_in_it(jail: Jail) -> None:
    """It is an error for the jail, not silence."""
    jail.call(1)
    client = jail.place.clients["one"]
    jail.relay.answered(client, client.frames[0].call, runtime_pb2.HostAnswer(), None)
    assert "answered nothing" in jail.answered().error.message


def test_an_owner_that_is_not_known(jail: Jail) -> None:
    """After a takeover the runtime's only client is called; of several none."""
    jail.relay = jail.line._handler = HostRelay()
    jail.relay.bind(jail.place)
    jail.call(1)
    assert "host_call" == jail.place.clients["one"].frames[-1].WhichOneof("body")
    jail.place.clients["two"] = Client("two")
    jail.call(2)
    assert "has gone" in jail.answered().error.message


def test_an_unserved_relay(jail: Jail) -> None:
    """Before it is bound and after it is closed, calls fail at once."""
    jail.relay.close()
    jail.call(1)
    assert "no client serves" in jail.answered().error.message
    jail.relay.bind(jail.place)
    jail.call(2)
    assert "host_call" == jail.place.clients["one"].frames[-1].WhichOneof("body")


def test_a_relay_that_follows_another_takes_nothing_for_the_same(jail: Jail) -> None:
    """A client that works on a killed relay's call would drop another call of that number, unheard; a handle
    that the jail has from then would stand for another value.
    """
    successor = Jail()
    numbers = set()
    for each in (jail, successor):
        each.call(1)
        client = each.place.clients["one"]
        reference = each.place.references.put(
            Content(size=1, count=1, inline=b"1"), INFO, HOME, holder="one", lease=60
        )
        numbers.add(client.frames[0].call)
        answer = runtime_pb2.HostAnswer(reference=reference.id)
        each.relay.answered(client, client.frames[0].call, answer, None)
        numbers.add(each.answered().reference.id)
    assert 4 == len(numbers)
    successor.line.close()
    successor.socket.close()


def test_a_relay_takes_up_what_a_killed_one_held() -> None:
    """The jail's handles, under their known numbers: it passes them on, drops them, and their client
    is notified. What was held for calls that are over is released.
    """
    place = Place()
    reference = place.references.put(
        Content(size=1, count=1, inline=b"1"), INFO, HOME, holder="runtime r handle 7 one", lease=math.inf
    ).id
    relay = HostRelay()
    assert not relay.take_up(HeldReference(reference=reference, tenant="us", holder="runtime r call 8"))
    assert relay.take_up(HeldReference(reference=reference, tenant="us", holder="runtime r handle 7 one"))
    jail = Jail(place, relay)
    request = jail_pb2.HostRequest()
    request.call.id, request.call.target, request.call.reference = 1, "f", 7
    Content(size=1, count=0, inline=b"1").to_wire(request.call.arguments, [])
    jail.socket.send(request.SerializeToString())
    assert jail.line.read(100)
    assert reference == place.clients["one"].frames[-1].host_call.value.reference
    relay.release(7)
    assert reference == place.clients["one"].frames[-1].reference_dropped.reference
    assert 1 == place.references.describe(reference, "us").holders  # for the call
    jail.line.close()
    jail.socket.close()


def test_what_is_dropped_before_a_relay_has_its_place() -> None:
    """It is dropped once the relay is bound."""
    place, relay = Place(), HostRelay()
    holder = "runtime r handle 7 one"
    content = Content(size=1, count=1, inline=b"1")
    reference = place.references.put(content, INFO, HOME, holder=holder, lease=math.inf).id
    relay.take_up(HeldReference(reference=reference, tenant="us", holder=holder))
    relay.release(7)
    relay.bind(place)
    assert [] == place.references.list("us", after="", limit=10)
