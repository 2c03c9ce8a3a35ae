"""What a worker and a fork of one of its frozen copies hand each other. Both are in the jail: neither is trusted."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import jail_pb2
from cenote_worker.content import Content
from cenote_worker.frames import receive_packet, send_packet
from cenote_worker.in_jail import plain_json
from cenote_worker.in_jail.carrying.set_recipes import recipes_for
from cenote_worker.in_jail.carrying.shared_axes import places
from cenote_worker.in_jail.checkpointing_unsafe import Anchors, NotKept, pickled
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

Sources = Mapping[str, tuple[str, list[int]]]
"""See CellCompiler."""

PATIENCE: Final = 60.0
"""Seconds. A fork that hangs on a lock of a thread that was not copied is not waited for any longer."""

_OWNED: Final = 4 * 2**20
"""Bytes of arrays that come over into memory of their own, as programs can tell, which takes some milliseconds."""


def order(line: socket.socket, wanted: jail_pb2.Wanted) -> None:
    """Asks for a parcel. Raises OSError."""
    payload, descriptors = jail_pb2.Payload(), list[int]()
    content = Content.pack([wanted.SerializeToString()])
    content.to_wire(payload, descriptors)
    send_packet(line, payload.SerializeToString(), descriptors)
    content.close()


def ordered(line: socket.socket) -> jail_pb2.Wanted | None:
    """What is asked for; None when nobody is there any more."""
    packet = receive_packet(line)
    if packet is None:
        return None
    content = Content.delivered(jail_pb2.Payload.FromString(packet.data), packet.descriptors)
    wanted = jail_pb2.Wanted.FromString(content.only_part())
    content.close()
    return wanted


def hand_over(line: socket.socket, content: Content) -> None:
    """Raises OSError when nobody is there any more."""
    given, descriptors = jail_pb2.Given(), list[int]()
    content.to_wire(given.content, descriptors)
    send_packet(line, given.SerializeToString(), descriptors)
    content.close()


def tell_files(line: socket.socket, number: int) -> None:
    """number: of a version of the working directory. Raises OSError when nobody is there any more."""
    send_packet(line, jail_pb2.Given(files=number).SerializeToString())


def refuse(line: socket.socket, reason: str) -> None:
    """Raises OSError when nobody is there any more."""
    send_packet(line, make(jail_pb2.Given, refused=reason).SerializeToString())


def received(line: socket.socket, step: int) -> tuple[Sources, list[memoryview]]:
    """Sources of cells, and the other parts of a parcel, in private pages.

    Raises NotKept with the reason when there is none.
    """
    given, descriptors = _answer(line, step)
    if given.WhichOneof("body") != "content":
        raise NotKept(given.refused)
    content = Content.delivered(given.content, descriptors)
    parts = content.unpack()
    content.close()
    return sources_in(parts[0]), parts[1:]


def sources_in(part: memoryview) -> Sources:
    """Of cells, in the first part of a parcel."""
    found: Sources = plain_json.loads(bytes(part))
    return found


def told_files(line: socket.socket, step: int) -> int:
    """As `tell_files` has it. Raises NotKept with the reason where nobody tells."""
    given, _ = _answer(line, step)
    if given.WhichOneof("body") != "files":
        raise NotKept(given.refused)
    return given.files


def _answer(line: socket.socket, step: int) -> tuple[jail_pb2.Given, list[int]]:
    """Raises NotKept."""
    poll = select.poll()
    poll.register(line, select.POLLIN)
    if not poll.poll(PATIENCE * 1000):
        raise NotKept(f"the copy of the state after step {step} did not give it away in {PATIENCE:g} s")
    packet = None
    with suppress(ConnectionResetError):  # the order was not even read
        packet = receive_packet(line)
    if packet is None:
        raise NotKept(f"no copy of the state after step {step} is kept, or none that could give it away")
    return jail_pb2.Given.FromString(packet.data), packet.descriptors


def packed(
    names: Collection[str],
    states: Mapping[str, object],
    namespace: Mapping[str, object],
    anchors: Anchors,
    sources: Sources,
) -> Content:
    """One pickle of `({name: value}, {state: value})`, names in the order of the namespace, with recipes for sets in
    it among its repairs; see `set_recipes`.

    Before it stand the sources of cells of which it has functions: a traceback shows lines of theirs.

    Raises NotKept, and whatever pickling the values raises.
    """
    values = {name: value for name, value in namespace.items() if name in names}
    parts, met = pickled(
        (values, states),
        namespace,
        anchors,
        owned=_OWNED,
        axes=places(names, namespace),
        more=lambda met: [("set", *each) for each in recipes_for(met)],
    )
    if id(namespace) in met:
        raise NotKept("it holds the namespace itself, as globals() gives it")
    for name, value in namespace.items():
        if name not in names and id(value) in met.keys() - anchors.keys() and _is_of_the_user(value):
            # It would come as a second one, of which what goes on using the name knows nothing.
            raise NotKept(f"it holds `{name}`, which does not come along")
    files = {each.co_filename for _, each in met.values() if type(each) is CodeType} & sources.keys()
    told = plain_json.dumps({each: sources[each] for each in sorted(files)}).encode()
    return Content.pack([told, *parts])


def _is_of_the_user(value: object) -> bool:
    """Whether it is pickled by value, and not as the name that it has."""
    if not isinstance(value, type | FunctionType):
        return False
    return value.__module__ == "__main__" or value.__module__ not in sys.modules
