"""Requests to a jail about its names, its files and parts of its state, ready to be queued, and its refusals.

Outside of their runtimes, values are written as pickles, as JSON, or as Arrow IPC; see `ValueForm`. Nothing here
loads one. An incoming value is sealed into a pickle that names the jail's function to load it, so that histories,
journals and later jails have one kind of injection.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Self

from cenote_proto.scalars import make, utf8_text, utf8_texts
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import (
    CenoteError,
    FileRefusedError,
    FileTakenError,
    JailError,
    MalformedValueError,
    NameExistsError,
    NotTransferableError,
    UnknownFileError,
    UnknownNameError,
    UnsafeValueError,
    UsageError,
)
from cenote_security.printable import printable
from cenote_security.values.plain_json import NotPlainError
from cenote_worker.execution.trace import (
    ABSENT,
    TREE,
    Location,
    StepTrace,
    Version,
    content_version,
    file,
    name,
)
from cenote_worker.history.bounds import MAX_FILE
from cenote_worker.history.events import ValuesInjected
from cenote_worker.history.step import START, StepKind, StepRecord
from cenote_worker.runtime.keyed_requests import key_of
from cenote_worker.supervisor.frame_parser import RefusedReply, ValueReply
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.requests import OWNER, AuthorSession, JailRequest, Listener, Outcome
from cenote_worker.transport.content import Content

_FOLDER = Version("folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientChange:
    """One change. names: of variables, or paths of files.

    data: the new content of the file, None where it is too large to be stored. unspeakable: its path is not plain
    text, so that the file cannot be named. put_in: the history's record of an injection. along, found: see DoneReply.
    stands_for: the step that is done again. number: of its step; START before the first one.
    """

    kind: StepKind
    names: tuple[str, ...]
    data: bytes | None = field(default=None, repr=False)
    unspeakable: bool = False
    put_in: ValuesInjected | None = None
    along: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    stands_for: StepRecord | None = None
    cause: str = ""
    seat: AuthorSession = OWNER
    number: int = START

    def trace(self) -> StepTrace | None:
        """The trace of a client's change. It is known without looking, except for the list of all files.

        That list gets a version of its own. A removed file existed, in an unknown state: its path may be a folder by
        now.
        """
        if self.stands_for is not None and self.kind != "injection":
            return self.stands_for.trace
        if self.unspeakable:
            return None
        if self.kind == "injection":
            return self._put_in_trace()
        removed = frozenset(map(file, self.names)) if self.kind == "removal" else frozenset[Location]()
        return StepTrace(writes=MappingProxyType(dict(self._writes())), mutated=removed)

    def _put_in_trace(self) -> StepTrace:
        """Values that are injected together may share objects, including classes; done again, they are equal.

        A class that goes along is bound where there is nothing of its name.
        """
        former = self.stands_for.trace if self.stands_for is not None else None
        together = tuple(map(name, (*self.names, *self.along)))
        own = Version(f"?step {self.number}")
        writes = {each: former.writes.get(each, own) if former is not None else own for each in together}
        reads = dict.fromkeys(map(name, self.along), ABSENT)
        reads |= dict.fromkeys(map(name, self.found), Version(f"?found by step {self.number}"))
        return StepTrace(
            reads=MappingProxyType(reads), writes=MappingProxyType(writes), groups=(frozenset(together),)
        )

    def _writes(self) -> Iterator[tuple[Location, Version]]:
        own = Version(f"?step {self.number}")
        if self.kind == "deletion":
            yield from ((name(each), ABSENT) for each in self.names)
            return
        for path in self.names:
            written = content_version(self.data) if self.data is not None else own
            yield file(path), ABSENT if self.kind == "removal" else written
            if self.kind == "upload":
                yield from ((file(folder), _FOLDER) for folder in _folders(path))
        yield TREE, own


def _folders(path: str) -> Iterator[str]:
    """The folders that contain it, which are made if need be."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


@dataclass(frozen=True, slots=True)
class WorkdirRequest:
    """One request, ready to be sent; the receiver closes it.

    message: without its content. shown: the path, printable. content: of a file that is to be written.
    stands_for: the step that it does again; cause: what required that.
    """

    ask: RequestKind
    message: jail_pb2.FileRequest
    shown: str
    content: Content | None = None
    stands_for: StepRecord | None = None
    cause: str = ""

    @classmethod
    def written(cls, path: str, data: bytes) -> Self:
        """Writes these bytes to a file, whatever is there."""
        message = jail_pb2.FileRequest(
            operation=jail_pb2.FileRequest.WRITE, path=path.encode(), overwrite=True
        )
        return cls(RequestKind.CHANGE_FILE, message, path, Content.of_bytes(data))

    @classmethod
    def removed(cls, path: str) -> Self:
        message = jail_pb2.FileRequest(operation=jail_pb2.FileRequest.DELETE, path=path.encode())
        return cls(RequestKind.CHANGE_FILE, message, path)

    def change(self) -> ClientChange | None:
        """What differs after it was carried out, if anything. Call this before the content is closed."""
        if self.ask is not RequestKind.CHANGE_FILE:
            return None
        path = b"/".join(part for part in self.message.path.split(b"/") if part not in (b"", b"."))
        shown = path.decode("utf-8", "backslashreplace")
        plain = shown.isprintable() and shown.encode("utf-8", "replace") == path
        kept = self.content if plain and self.content is not None and self.content.size <= MAX_FILE else None
        return ClientChange(
            kind="removal" if self.message.operation == jail_pb2.FileRequest.DELETE else "upload",
            names=(shown if plain else self.shown,),
            data=kept.whole() if kept is not None else None,
            unspeakable=not plain,
            stands_for=self.stands_for,
            cause=self.cause,
        )

    def close(self) -> None:
        if self.content is not None:
            self.content.close()


_OPENERS: Final = {jail_pb2.JSON_VALUE: b"from_json", jail_pb2.ARROW_VALUE: b"from_arrow"}


@dataclass(frozen=True, slots=True)
class WrittenForm:
    """The form of a value that leaves its runtime. most: bytes; 0 for the limit of any value."""

    form: jail_pb2.ValueForm.ValueType = jail_pb2.PYTHON_VALUE
    most: int = 0


PYTHON: Final = WrittenForm()


def sealed(form: jail_pb2.ValueForm.ValueType, content: Content) -> Content:
    """The pickle of a value that came in another form than a pickle; the content is copied, and closed.

    It is made of five instructions (protocol 5, a function, the buffer beside the pickle, the call, the end), so no
    pickler has to see what a client sent. Raises UsageError for a form of a later version, OSError without memory.
    """
    try:
        opener = _OPENERS.get(form)
        if opener is None:
            raise UsageError(f"there is no form {form} of values in this version")
        stream = b"\x80\x05ccenote_worker.jail.values.value_forms\n" + opener + b"\n\x97\x85R."
        whole = memoryview(content.inline or b"") if content.memory is None else content.memory.map()
        return Content.pack([stream, whole])
    finally:
        content.close()


class FormCheck:
    """Checks the fetched value in another form than a pickle: a jail may answer with anything."""

    def __init__(self, listener: Listener, written: WrittenForm) -> None:
        self._listener = listener
        self._most = written.most
        self.output = listener.output

    def done(self, outcome: Outcome) -> None:
        self._listener.done(self._checked(outcome))

    def _checked(self, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, ValueReply):
            return outcome
        content = outcome.content
        if content.count:
            content.close()
            return MalformedValueError("the jail answered with parts where one text or stream was asked for")
        if self._most and content.size > self._most:
            content.close()
            return UsageError(f"the value takes {content.size:,} bytes in this form, of up to {self._most:,}")
        return outcome


def as_error(refused: RefusedReply, name: str) -> CenoteError:
    """The error for a refusal; `name` is the name in the request. The texts come from the jail: never trusted."""
    match refused.kind:
        case jail_pb2.Refusal.UNKNOWN_NAME:
            return UnknownNameError(refused.name, refused.nearest)
        case jail_pb2.Refusal.NAME_EXISTS:
            return NameExistsError(refused.name)
        case jail_pb2.Refusal.UNSAFE_VALUE:
            return UnsafeValueError(refused.name, refused.message)
        case jail_pb2.Refusal.NOT_PLAIN:
            return NotPlainError(printable(refused.message))
        case jail_pb2.Refusal.NOT_TRANSFERABLE:
            return NotTransferableError(refused.name or name, refused.message)
        case jail_pb2.Refusal.NO_FILE:
            return UnknownFileError(name)
        case jail_pb2.Refusal.FILE_EXISTS:
            return FileTakenError(name)
        case jail_pb2.Refusal.FILE_REFUSED:
            return FileRefusedError(name, printable(refused.message))
    return JailError(f"{name!r}: {refused.message}")


STATE_TIMEOUT = 600.0
"""Seconds that a state, or one piece of it, may take to leave or enter its jail, where that is not a call of its own:
a short limit for calls must not cost a state."""


def step(
    code: str,
    number: int,
    seat: AuthorSession,
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


def cell(code: str, step: int, timeout: float | None, listener: Listener, seat: AuthorSession) -> JailRequest:
    content = Content.pack([code.encode("utf-8", "surrogatepass")])
    message, descriptors = jail_pb2.Request(), list[int]()
    message.execute.step = step
    content.to_wire(message.execute.code, descriptors)
    owned = [content.close]
    return JailRequest(
        RequestKind.EXECUTE, message, listener, descriptors, owned, timeout, step, key_of(listener), seat=seat
    )


def fetch(
    name: str,
    listener: Listener,
    seat: AuthorSession,
    *,
    opaque: bool,
    written: WrittenForm = PYTHON,
    together: Sequence[str] = (),
    states: Sequence[str] = (),
) -> JailRequest:
    """together, states: instead of a name; see Fetch."""
    message = jail_pb2.Request()
    message.fetch.name, message.fetch.opaque = utf8_text(name), opaque
    message.fetch.form, message.fetch.most = written.form, written.most
    message.fetch.together.extend(utf8_texts(together))
    message.fetch.states.extend(utf8_texts(states))
    return JailRequest(RequestKind.FETCH, message, listener, seat=seat)


def delete(name: str, listener: Listener, seat: AuthorSession) -> JailRequest:
    message = jail_pb2.Request()
    message.delete.name = utf8_text(name)
    return JailRequest(RequestKind.DELETE, message, listener, seat=seat)


def describe(listener: Listener, seat: AuthorSession) -> JailRequest:
    message = jail_pb2.Request()
    message.describe.SetInParent()
    return JailRequest(RequestKind.DESCRIBE, message, listener, seat=seat)


def note_of_files(step: int, listener: Listener, seat: AuthorSession) -> JailRequest:
    """Another process may have changed files: the files as they are now are the state of this step."""
    message = jail_pb2.Request(file=jail_pb2.FileRequest(operation=jail_pb2.FileRequest.NOTE))
    return JailRequest(RequestKind.CHANGE_FILE, message, listener, step=step, seat=seat)


def file_request(ask: WorkdirRequest, listener: Listener, seat: AuthorSession) -> JailRequest:
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
    return JailRequest(
        RequestKind.MAKE_CHECKPOINT, message, listener, descriptors, owned, timeout=STATE_TIMEOUT
    )


PARTS_TIMEOUT: Final = 120.0
"""Seconds: twice what the jail itself waits for a copy of a former state to pass something on."""


def asking_versions(locations: Sequence[Location], listener: Listener, seat: AuthorSession) -> JailRequest:
    """The listener gets a VersionsReply, or a RefusedReply where nothing is watched."""
    message, content = jail_pb2.Request(), _packed(locations)
    return _request(RequestKind.VERSIONS, message, message.versions.locations, content, listener, seat)


def carrying(
    step: int, locations: Sequence[Location], listener: Listener, seat: AuthorSession
) -> JailRequest:
    """The listener gets a DoneReply, or a RefusedReply whose message is the reason; then nothing has changed."""
    message, content = jail_pb2.Request(), _packed(locations)
    message.carry.step = step
    return _request(RequestKind.CARRY, message, message.carry.locations, content, listener, seat)


def borrowing(
    line: socket.socket, step: int, locations: Sequence[Location], listener: Listener, seat: AuthorSession
) -> JailRequest:
    """As `carrying`, from the jail at the other end of the line, which must lend them. Takes the line over."""
    request = carrying(step, locations, listener, seat)
    request.message.carry.from_another = True
    _send_along(request, line)
    return request


def lending(line: socket.socket, listener: Listener) -> JailRequest:
    """The jail passes on what the one at the other end of the line requests. Takes the line over."""
    message = jail_pb2.Request()
    message.lend.SetInParent()
    request = JailRequest(RequestKind.LEND, message, listener, timeout=PARTS_TIMEOUT)
    _send_along(request, line)
    return request


def _send_along(request: JailRequest, line: socket.socket) -> None:
    request.descriptors.append(line.fileno())
    request.owned.append(line.close)


def forgetting(locations: Sequence[Location], listener: Listener, seat: AuthorSession) -> JailRequest:
    """The listener gets a DoneReply."""
    message, content = jail_pb2.Request(), _packed(locations)
    return _request(RequestKind.FORGET, message, message.forget.locations, content, listener, seat)


def arranging(names: Sequence[Location], listener: Listener, seat: AuthorSession) -> JailRequest:
    """The listener gets a DoneReply."""
    request = forgetting(names, listener, seat)
    request.message.forget.arrange = True
    return request


def loading(modules: Sequence[str], listener: Listener, seat: AuthorSession) -> JailRequest:
    """The listener gets a DoneReply, whether or not there are such modules."""
    message = jail_pb2.Request()
    message.load.modules.extend(utf8_texts(modules))
    return JailRequest(RequestKind.LOAD, message, listener, timeout=PARTS_TIMEOUT, seat=seat)


def _packed(locations: Sequence[Location]) -> Content:
    return Content.pack([make(jail_pb2.Locations, locations=locations).SerializeToString()])


def _request(
    ask: RequestKind,
    message: jail_pb2.Request,
    payload: jail_pb2.Payload,
    content: Content,
    listener: Listener,
    seat: AuthorSession,
) -> JailRequest:
    descriptors = list[int]()
    content.to_wire(payload, descriptors)
    return JailRequest(ask, message, listener, descriptors, [content.close], timeout=PARTS_TIMEOUT, seat=seat)
