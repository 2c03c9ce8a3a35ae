"""Values of the namespace, injected and fetched by requests, name by name; and the refusal of a request."""

from __future__ import annotations

import difflib
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cenote_proto.scalars import utf8_text, utf8_texts
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import UnsafeValueError
from cenote_security.values.encoder import encode
from cenote_security.values.plain_json import NotPlainError
from cenote_worker.execution.messages import fill_variable
from cenote_worker.execution.results import MAX_ALONG, VariableInfo
from cenote_worker.jail.kernel import Kernel
from cenote_worker.jail.rendering.bounded_text import bases
from cenote_worker.jail.sockets import socket_of
from cenote_worker.jail.state.branch_merge_unsafe import BranchMerge, NamesTogether
from cenote_worker.jail.state.pickles_unsafe import NotKept
from cenote_worker.jail.values.host_channel import HostChannel
from cenote_worker.jail.values.host_stubs import Reference, stub_for
from cenote_worker.jail.values.value_forms import written
from cenote_worker.jail.values.value_pickles_unsafe import dump
from cenote_worker.pickling.buffers_unsafe import loads
from cenote_worker.process.pristine import BUILTINS, own_builtins
from cenote_worker.transport.content import Content
from cenote_worker.transport.packets import Send

__builtins__ = BUILTINS

MESSAGE_LIMIT: Final = 4_000
"""Characters of a refusal's text."""


class RequestRefused(Exception):
    """A request cannot be done; the reason is data."""

    def __init__(
        self,
        kind: jail_pb2.Refusal.Kind.ValueType,
        name: str = "",
        message: str = "",
        nearest: tuple[str, ...] = (),
    ) -> None:
        super().__init__(kind, name, message)
        self.kind, self.name, self.message, self.nearest = kind, name, message, nearest

    def fill(self, message: jail_pb2.Refusal) -> None:
        """Fills the message for the supervisor."""
        message.kind, message.name = self.kind, utf8_text(self.name[:MESSAGE_LIMIT])
        message.message = utf8_text(self.message[:MESSAGE_LIMIT])
        message.nearest.extend(utf8_texts(self.nearest))


_fstat = os.fstat


class ValueRequests:
    """Requests about the current author's namespace. Raises RequestRefused for what cannot be done."""

    def __init__(
        self, kernel: Kernel, send_packet: Send, offer: Callable[[str, object], None], merging: BranchMerge
    ) -> None:
        """offer: called with each stub of a host function and its name."""
        self._merging = merging
        self._kernel = kernel
        self._send_packet = send_packet
        self._offer = offer
        self.hosts: HostChannel | None = None
        """The channel of host calls; made at the first injection of a host function."""
        self._is_first = True
        """Whether this process does not come from another one's state."""

    def inject(self, request: jail_pb2.Inject, descriptors: list[int], done: jail_pb2.Done) -> None:
        """Binds values and stubs of host functions; nothing is bound if a name is taken."""
        content = Content.delivered(request.values, descriptors)
        hosts = _host_targets(request, descriptors)
        if request.has_host_channel:
            self._take_line(socket_of(descriptors.pop(0)))
        names = [request.name] if request.name else []
        self._check_free([*names, *(host.name for host in hosts)], request.replace)
        values, along = self._opened(content, request.name)
        if isinstance(merged := values.get(request.name), NamesTogether):
            done.differing.extend(utf8_texts(self._merged(merged, request.name)))
            return
        self._check_free([name for name in values if not self._holds(name, values[name])], request.replace)
        self._bind(values)
        for name, cls in along.items():
            if name not in values and len(done.along) + len(done.found) < MAX_ALONG:
                (done.found if name in self._kernel.namespace else done.along).append(name)
            self._kernel.namespace.setdefault(name, cls)
        for spec in hosts:
            assert self.hosts is not None
            self._kernel.namespace[spec.name] = stub = stub_for(self.hosts, spec)
            self._offer(spec.name, stub)

    def _bind(self, values: dict[str, object]) -> None:
        """Binds values. Releasing the old values may run user code, which an interrupt must be able to stop."""
        try:
            with self._kernel.interruptible():
                self._kernel.namespace.update(values)
        except KeyboardInterrupt:  # it came between two of them
            self._kernel.namespace.update(values)

    def revive(self) -> None:
        """Called in a copy of the process that had these."""
        self._is_first = False
        if self.hosts is not None:
            self.hosts.revive()

    def _take_line(self, sock: socket.socket) -> None:
        """Takes the socket that comes with each injection of host functions. It may be new here and used before
        elsewhere."""
        if self.hosts is not None and _is_same(self.hosts.sock, sock):
            sock.close()
            return
        self.hosts = HostChannel(sock, self._send_packet)
        if not self._is_first:
            self.hosts.revive()

    def fetch(self, request: jail_pb2.Fetch, reply: jail_pb2.Value) -> Content:
        """The value of a name, encoded or pickled; or several names together. The caller closes it."""
        if request.together or request.states:
            return self._together(request, reply)
        value = self._lookup(request.name)
        fill_variable(reply.info, self._kernel.describe_one(request.name))
        if isinstance(value, Reference):
            raise RequestRefused(
                jail_pb2.Refusal.UNSAFE_VALUE,
                "Reference",
                "it only stands for a value of another runtime; ask that runtime for it",
            )
        if request.form != jail_pb2.PYTHON_VALUE:
            content = self._written(request, value)
        else:
            content = self._pickled(request.name, value) if request.opaque else self._encoded(value)
        content.to_wire(reply.content, [])
        return content

    def _together(self, request: jail_pb2.Fetch, reply: jail_pb2.Value) -> Content:
        names = list(request.together)
        for name in names:
            self._lookup(name)
        try:
            with self._kernel.interruptible():
                content = dump(self._merging.packed(names, request.states))
        except (Exception, KeyboardInterrupt) as error:  # a user's own __reduce__ may raise anything
            raise RequestRefused(
                jail_pb2.Refusal.NOT_TRANSFERABLE, ", ".join(names), _reason(error)
            ) from None
        content.to_wire(reply.content, [])
        return content

    def _merged(self, merged: NamesTogether, name: str) -> tuple[str, ...]:
        try:
            with self._kernel.interruptible():
                return self._merging.bind(merged)
        except (Exception, KeyboardInterrupt) as error:
            text = f"it cannot be rebuilt in the jail: {_reason(error)}"
            raise RequestRefused(jail_pb2.Refusal.NOT_TRANSFERABLE, name, text) from None

    def delete(self, name: str) -> None:
        self._lookup(name)
        try:
            with self._kernel.interruptible():  # releasing the value may run user code
                del self._kernel.namespace[name]
        except KeyboardInterrupt:
            if name in self._kernel.namespace:
                raise RequestRefused(jail_pb2.Refusal.FAILED, name, "it was interrupted") from None

    def described(self, request: jail_pb2.Describe) -> list[VariableInfo]:
        with (
            self._interruptible()
        ):  # of one variable that never ends nothing is said, and the next one follows
            if not request.names:
                return self._kernel.describe()
            return [
                self._kernel.describe_one(name) for name in request.names if name in self._kernel.namespace
            ]

    def _opened(self, content: Content, name: str) -> tuple[dict[str, object], dict[str, object]]:
        """The values, and the classes that accompany them, both by name."""
        try:
            with self._kernel.interruptible():
                value = loads(content)
        except NotPlainError as error:
            raise RequestRefused(jail_pb2.Refusal.NOT_PLAIN, name, str(error)) from None
        except (
            Exception,
            KeyboardInterrupt,
        ) as error:  # a user's class may raise anything while it is rebuilt
            text = f"it cannot be rebuilt in the jail: {type(error).__name__}: {error}"
            raise RequestRefused(jail_pb2.Refusal.NOT_TRANSFERABLE, name, text) from None
        finally:
            content.close()
        if name:
            return {name: value}, {}
        assert isinstance(value, tuple)
        values, along = value
        return values, along

    def _holds(self, name: str, value: object) -> bool:
        """Whether the name has this very class already: a class accompanies its values."""
        return type in bases(type(value)) and self._kernel.namespace.get(name) is value

    def _check_free(self, names: list[str], replace: bool) -> None:
        if replace:
            return
        with self._interruptible():
            for name in names:
                if name in self._kernel.namespace:
                    raise RequestRefused(jail_pb2.Refusal.NAME_EXISTS, name)

    def _pickled(self, name: str, value: object) -> Content:
        try:
            with self._kernel.interruptible():
                return dump(value)
        except (Exception, KeyboardInterrupt) as error:  # a user's own __reduce__ may raise anything
            text = f"{type(error).__name__}: {error}"
            raise RequestRefused(jail_pb2.Refusal.NOT_TRANSFERABLE, name, text) from None

    def _written(self, request: jail_pb2.Fetch, value: object) -> Content:
        try:
            with self._kernel.interruptible(), own_builtins():
                content = written(value, request.name, request.form)
        except NotPlainError as error:
            raise RequestRefused(jail_pb2.Refusal.NOT_PLAIN, request.name, str(error)) from None
        except (Exception, KeyboardInterrupt) as error:  # hostile values may raise anything
            text = f"{type(error).__name__}: {error}"
            raise RequestRefused(jail_pb2.Refusal.FAILED, "", text) from None
        if request.most and content.size > request.most:
            content.close()
            text = f"{request.name} takes {content.size:,} bytes in this form, of up to {request.most:,}"
            raise RequestRefused(jail_pb2.Refusal.NOT_PLAIN, request.name, text)
        return content

    def _encoded(self, value: object) -> Content:
        try:
            with self._kernel.interruptible(), own_builtins():
                encoded = encode(value)
                return Content.pack([encoded.header, encoded.pieces])
        except UnsafeValueError as error:
            raise RequestRefused(jail_pb2.Refusal.UNSAFE_VALUE, error.class_name, error.detail) from None
        except (Exception, KeyboardInterrupt) as error:  # hostile values may raise anything
            text = f"{type(error).__name__}: {error}"
            raise RequestRefused(jail_pb2.Refusal.FAILED, "", text) from None

    def _lookup(self, name: str) -> object:
        with self._interruptible():
            try:
                return self._kernel.namespace[name]
            except KeyError:
                names = [info.name for info in self._kernel.describe()]
                nearest = tuple(difflib.get_close_matches(name, names, n=3))
                raise RequestRefused(jail_pb2.Refusal.UNKNOWN_NAME, name, nearest=nearest) from None

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """For requests that change nothing. A comparison of a user's object may never return."""
        try:
            with self._kernel.interruptible():
                yield
        except KeyboardInterrupt:
            raise RequestRefused(jail_pb2.Refusal.FAILED, message="it was interrupted") from None


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, NotKept) else f"{type(error).__name__}: {error}"


def _is_same(one: socket.socket, other: socket.socket) -> bool:
    try:
        return _fstat(one.fileno()).st_ino == _fstat(other.fileno()).st_ino
    except OSError:  # a cell has closed the one that it had
        return False


def _host_targets(request: jail_pb2.Inject, descriptors: list[int]) -> list[jail_pb2.HostTarget]:
    if not request.HasField("hosts"):
        return []
    content = Content.delivered(request.hosts, descriptors)
    targets = jail_pb2.HostTargets.FromString(content.only_part()).targets
    content.close()
    return list(targets)
