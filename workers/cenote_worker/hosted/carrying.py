"""Requests about parts of a state: their versions, bringing them over from a former one, removing them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

from cenote_proto.scalars import make, utf8_texts
from cenote_proto.v1 import jail_pb2
from cenote_worker.content import Content
from cenote_worker.supervisor.protocol import Ask
from cenote_worker.supervisor.requests import JailRequest, Listener, Seat
from cenote_worker.trace import Location

TIMEOUT: Final = 120.0
"""Seconds: twice what the jail itself waits for a copy of a former state to give something away."""


def asking_versions(locations: Sequence[Location], listener: Listener, seat: Seat) -> JailRequest:
    """The listener gets a VersionsReply, or a RefusedReply where nothing is watched."""
    message, content = jail_pb2.Request(), _packed(locations)
    return _request(Ask.VERSIONS, message, message.versions.locations, content, listener, seat)


def carrying(step: int, locations: Sequence[Location], listener: Listener, seat: Seat) -> JailRequest:
    """The listener gets a DoneReply, or a RefusedReply whose message is the reason; then nothing has changed."""
    message, content = jail_pb2.Request(), _packed(locations)
    message.carry.step = step
    return _request(Ask.CARRY, message, message.carry.locations, content, listener, seat)


def borrowing(
    line: socket.socket, step: int, locations: Sequence[Location], listener: Listener, seat: Seat
) -> JailRequest:
    """As `carrying`, from the jail at the other end of the line, which is asked to lend them. Takes the line over."""
    request = carrying(step, locations, listener, seat)
    request.message.carry.from_another = True
    _send_along(request, line)
    return request


def lending(line: socket.socket, listener: Listener) -> JailRequest:
    """The jail gives what the one at the other end of the line asks for. Takes the line over."""
    message = jail_pb2.Request()
    message.lend.SetInParent()
    request = JailRequest(Ask.LEND, message, listener, timeout=TIMEOUT)
    _send_along(request, line)
    return request


def _send_along(request: JailRequest, line: socket.socket) -> None:
    request.descriptors.append(line.fileno())
    request.owned.append(line.close)


def forgetting(locations: Sequence[Location], listener: Listener, seat: Seat) -> JailRequest:
    """The listener gets a DoneReply."""
    message, content = jail_pb2.Request(), _packed(locations)
    return _request(Ask.FORGET, message, message.forget.locations, content, listener, seat)


def arranging(names: Sequence[Location], listener: Listener, seat: Seat) -> JailRequest:
    """The listener gets a DoneReply."""
    request = forgetting(names, listener, seat)
    request.message.forget.arrange = True
    return request


def loading(modules: Sequence[str], listener: Listener, seat: Seat) -> JailRequest:
    """The listener gets a DoneReply, whether or not there are such modules."""
    message = jail_pb2.Request()
    message.load.modules.extend(utf8_texts(modules))
    return JailRequest(Ask.LOAD, message, listener, timeout=TIMEOUT, seat=seat)


def _packed(locations: Sequence[Location]) -> Content:
    return Content.pack([make(jail_pb2.Locations, locations=locations).SerializeToString()])


def _request(
    ask: Ask,
    message: jail_pb2.Request,
    payload: jail_pb2.Payload,
    content: Content,
    listener: Listener,
    seat: Seat,
) -> JailRequest:
    descriptors = list[int]()
    content.to_wire(payload, descriptors)
    return JailRequest(ask, message, listener, descriptors, [content.close], timeout=TIMEOUT, seat=seat)
