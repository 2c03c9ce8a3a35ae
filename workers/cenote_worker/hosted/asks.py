"""Requests to a jail about its names, its files and its state, ready to be queued."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from cenote_proto.scalars import utf8_text, utf8_texts
from cenote_proto.v1 import jail_pb2
from cenote_worker.content import Content
from cenote_worker.history.step import START, StepRecord
from cenote_worker.hosted.files import FileAsk
from cenote_worker.hosted.keyed_call import key_of
from cenote_worker.hosted.value_forms import PYTHON, Written
from cenote_worker.supervisor.protocol import Ask
from cenote_worker.supervisor.requests import JailRequest, Listener, Seat

STATE_TIMEOUT = 600.0
"""Seconds that a state, or one piece of it, may take to leave its jail or to come into one, where it is not a call of
its own: a short limit for calls must not cost a state."""


def step(
    code: str,
    number: int,
    seat: Seat,
    cause: str,
    timeout: float | None,
    *,
    origin: int = START,
    atomic: bool = False,
) -> StepRecord:
    """What is known of a cell before it runs."""
    return StepRecord(
        number=number,
        origin=origin,
        code=code,
        author=seat.author,
        private=seat.private,
        cause=cause,
        timeout=timeout or 0.0,
        atomic=atomic,
    )


def cell(code: str, step: int, timeout: float | None, listener: Listener, seat: Seat) -> JailRequest:
    content = Content.pack([code.encode("utf-8", "surrogatepass")])
    message, descriptors = jail_pb2.Request(), list[int]()
    message.execute.step = step
    content.to_wire(message.execute.code, descriptors)
    owned = [content.close]
    return JailRequest(
        Ask.EXECUTE, message, listener, descriptors, owned, timeout, step, key_of(listener), seat=seat
    )


def fetch(
    name: str,
    listener: Listener,
    seat: Seat,
    *,
    opaque: bool,
    written: Written = PYTHON,
    together: Sequence[str] = (),
    states: Sequence[str] = (),
) -> JailRequest:
    """together, states: instead of a name; see Fetch."""
    message = jail_pb2.Request()
    message.fetch.name, message.fetch.opaque = utf8_text(name), opaque
    message.fetch.form, message.fetch.most = written.form, written.most
    message.fetch.together.extend(utf8_texts(together))
    message.fetch.states.extend(utf8_texts(states))
    return JailRequest(Ask.FETCH, message, listener, seat=seat)


def delete(name: str, listener: Listener, seat: Seat) -> JailRequest:
    message = jail_pb2.Request()
    message.delete.name = utf8_text(name)
    return JailRequest(Ask.DELETE, message, listener, seat=seat)


def describe(listener: Listener, seat: Seat) -> JailRequest:
    message = jail_pb2.Request()
    message.describe.SetInParent()
    return JailRequest(Ask.DESCRIBE, message, listener, seat=seat)


def note_of_files(step: int, listener: Listener, seat: Seat) -> JailRequest:
    """Something beside the namespace may have changed files: that is the state of this step."""
    message = jail_pb2.Request(file=jail_pb2.FileRequest(operation=jail_pb2.FileRequest.NOTE))
    return JailRequest(Ask.CHANGE_FILE, message, listener, step=step, seat=seat)


def file(ask: FileAsk, listener: Listener, seat: Seat) -> JailRequest:
    """Takes `ask` over."""
    message, descriptors = jail_pb2.Request(file=ask.message), list[int]()
    if ask.content is not None:
        ask.content.to_wire(message.file.content, descriptors)
    return JailRequest(ask.ask, message, listener, descriptors, [ask.close], seat=seat)


def make_checkpoint(
    known: Content,
    channel: socket.socket,
    listener: Listener,
    form: jail_pb2.MakeCheckpoint.Form.ValueType,
) -> JailRequest:
    """Takes `known` and `channel` over."""
    message, descriptors = jail_pb2.Request(), list[int]()
    message.make_checkpoint.form = form
    known.to_wire(message.make_checkpoint.known, descriptors)
    descriptors.append(channel.fileno())
    owned = [known.close, channel.close]
    return JailRequest(Ask.MAKE_CHECKPOINT, message, listener, descriptors, owned, timeout=STATE_TIMEOUT)
