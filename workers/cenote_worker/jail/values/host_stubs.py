"""Stubs in the namespace for things that live in the client: functions, objects, sub-agents, references."""

from __future__ import annotations

import asyncio
import builtins
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import UnsafeValueError
from cenote_security.values.encoder import encode
from cenote_worker.jail.cells.static_errors import EXACT
from cenote_worker.jail.process.cell_boundary import result_of
from cenote_worker.jail.rendering.signatures import parse_signature
from cenote_worker.jail.rendering.variables import describe_variable
from cenote_worker.jail.values.host_channel import Answer, HostCallFailed, HostChannel, ReferenceAnswer
from cenote_worker.jail.values.value_pickles_unsafe import dump
from cenote_worker.pickling.buffers_unsafe import loads
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.transport.content import Content

__builtins__ = BUILTINS

_NOT_MADE_HERE = UnicodeError, BaseExceptionGroup, MemoryError
"""The first two cannot be made from a text alone; the third would say that this jail's memory is full."""

_RAISABLE = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, Exception) and not issubclass(value, _NOT_MADE_HERE)
}


class HostError(RuntimeError):
    """A host function failed with an exception of a class that this jail does not know.

    Where that inherits from a builtin class other than Exception, so does this one's: `except ValueError` catches it.
    """

    __str__ = BaseException.__str__  # not that of KeyError or SyntaxError

    def __reduce__(self) -> str | tuple[Any, ...]:
        *_, base = type(self).__bases__
        if _host_errors.get(base) is not type(self):  # it is found under its name
            return super().__reduce__()
        return _host_error, (base.__name__, *self.args), self.__dict__


_host_errors: dict[type[Exception], type[HostError]] = {}
"""Classes of HostErrors by their builtin bases."""


def _host_error(base: str, *args: object) -> HostError:
    known = _RAISABLE.get(base, RuntimeError)
    if issubclass(HostError, known):
        return HostError(*args)
    if known not in _host_errors:
        _host_errors[known] = type(
            HostError.__name__, (HostError, known), {"__module__": HostError.__module__}
        )
    return _host_errors[known](*args)


@dataclass(frozen=True, slots=True)
class AgentReply:
    """The answer of a sub-agent. `str()` of it is its text."""

    content: str
    status: str
    steps_taken: int

    def __str__(self) -> str:
        return self.content


class Reference:
    """A handle to a value in another runtime; pass it to `update_variable` there, nothing is copied."""

    __slots__ = ("__weakref__", "_number", "description", "shape", "size", "type")

    def __init__(self, channel: HostChannel, answer: ReferenceAnswer) -> None:
        self._number = answer.number
        self.type = answer.info.type
        self.shape = tuple(answer.info.shape) if answer.info.has_shape else None
        self.size = answer.info.size
        self.description = answer.info.description
        weakref.finalize(self, channel.release, answer.number).atexit = False

    def __repr__(self) -> str:
        shape = f" {self.shape}" if self.shape is not None else ""
        return f"<reference to {self.type}{shape}, {self.size} bytes: {self.description}>"


@dataclass(frozen=True, slots=True)
class _Caller:
    """Makes calls on one target of the client."""

    channel: HostChannel
    target: str

    def call(self, method: str, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        return self._wait(*self.channel.call(self.target, method, _arguments(args, kwargs)))

    async def acall(self, method: str, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        number, future = self.channel.call(self.target, method, _arguments(args, kwargs))
        try:
            return self._open(await asyncio.wrap_future(future))
        except HostCallFailed as failure:
            error = _as_exception(failure)
        except asyncio.CancelledError:
            self.channel.cancel(number)
            raise
        raise error from error.__cause__

    def send_value(self, method: str, value: object, args: tuple[object, ...], name: str) -> object:
        """Gives `value` to another jail: a reference by its number, anything else as a sealed pickle.

        name: for the value's description.
        """
        arguments = _arguments(args, {})
        if isinstance(value, Reference):
            return self._wait(*self.channel.call(self.target, method, arguments, reference=value._number))
        info = describe_variable(name, value)
        return self._wait(*self.channel.call(self.target, method, arguments, opaque=dump(value), info=info))

    def _wait(self, number: int, future: Future[Answer]) -> object:
        try:
            return self._open(result_of(future))
        except HostCallFailed as failure:
            error = _as_exception(failure)
        except KeyboardInterrupt:
            self.channel.cancel(number)
            raise
        raise error from error.__cause__

    def _open(self, answer: Answer) -> object:
        if isinstance(answer, ReferenceAnswer):
            return Reference(self.channel, answer)
        try:
            return loads(answer)
        finally:
            answer.close()


def _arguments(args: tuple[object, ...], kwargs: dict[str, object]) -> Content:
    try:
        encoded = encode([list(args), kwargs])
    except UnsafeValueError as error:
        detail = f" ({error.detail})" if error.detail else ""
        text = f"{error.class_name} cannot be passed to a function of the client{detail}; pass plain data"
        raise TypeError(text) from None
    return Content.pack([encoded.header, encoded.pieces])


def _as_exception(failure: HostCallFailed) -> Exception:
    known = _RAISABLE.get(failure.type)
    error: Exception
    if failure.exceptions:  # of any kind of group, so that `except*` finds its members
        error = ExceptionGroup(failure.message, list(map(_as_exception, failure.exceptions)))
    else:
        error = _host_error(failure.base, str(failure)) if known is None else known(failure.message)
    error.__cause__ = None if failure.cause is None else _as_exception(failure.cause)
    for note in failure.notes:
        error.add_note(note)
    return error


def function_stub(
    channel: HostChannel, target: str, spec: jail_pb2.HostTarget | jail_pb2.HostMethod, method: str = ""
) -> Callable[..., object]:
    """A function of the client as a plain function of this namespace."""
    caller = _Caller(channel, target)

    def call(*args: object, **kwargs: object) -> object:
        return caller.call(method, args, kwargs)

    async def acall(*args: object, **kwargs: object) -> object:
        return await caller.acall(method, args, kwargs)

    def call_with_value(name: str, value: object) -> object:
        return caller.send_value(method, value, (name,), name)

    stub: Callable[..., object] = acall if spec.is_async else call
    if isinstance(spec, jail_pb2.HostMethod) and spec.takes_value:
        stub = call_with_value
    stub.__name__ = stub.__qualname__ = spec.name
    stub.__doc__ = spec.doc or None
    stub.__module__ = "__main__"
    signature = parse_signature(spec.signature)
    if signature is not None:
        stub.__signature__ = signature  # type: ignore[attr-defined]
        if spec.qualname and stub is not call_with_value:
            vars(stub)[EXACT] = spec.qualname, spec.is_bound
    return stub


class _StandIn:
    """A stub of something in the client. An attribute set here would have no effect there, so that is refused."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"setting `{name}` here would not reach the client; {self._instead(name)}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"deleting `{name}` here would not reach the client; {self._instead(name)}")

    def _instead(self, name: str) -> str:
        raise NotImplementedError


class HostObject(_StandIn):
    """A stub of a live object in the client. Calls of its public methods run there."""

    _name: str

    def __init__(self, channel: HostChannel, spec: jail_pb2.HostTarget) -> None:
        own = vars(self)
        own.update(__doc__=spec.doc or None, _name=spec.name)
        for method in spec.methods:
            own[method.name] = function_stub(channel, _address(spec), method, method.name)

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):  # copy and pickle ask before the instance is initialized
            raise AttributeError(name)
        text = f"{self._name} is an object in the client; only its methods are here: {self._methods()}"
        raise AttributeError(text, name=name, obj=self)

    def _instead(self, _name: str) -> str:
        return f"call a method of {self._name}: {self._methods()}"

    def _methods(self) -> str:
        return ", ".join(method for method in vars(self) if not method.startswith("_")) or "it has none"

    def __repr__(self) -> str:
        return f"<{self._name}: an object in the client; its methods run there>"


class SubAgentRuntime(_StandIn):
    """The runtime of a sub-agent. Values are passed directly from jail to jail, without a model."""

    _caller: _Caller

    def __init__(self, caller: _Caller) -> None:
        vars(self)["_caller"] = caller

    def _instead(self, name: str) -> str:
        return f"update_variable({name!r}, value) sets a variable of the sub-agent"

    def update_variable(self, name: str, value: object) -> None:
        """Sets a variable of the sub-agent to a value, or to the target of a reference."""
        self._caller.send_value("runtime.update_variable", value, (name,), name)

    def retrieve(self, name: str) -> object:
        """A copy of a variable of the sub-agent; changes to it stay here."""
        return self._caller.call("runtime.retrieve", (name,), {})

    def share(self, name: str) -> object:
        """A reference to a variable of the sub-agent, to be passed on."""
        return self._caller.call("runtime.share", (name,), {})

    def describe(self) -> object:
        """Name, type, shape and description of each variable of the sub-agent."""
        return self._caller.call("runtime.describe", (), {})


class SubAgent(_StandIn):
    """An agent with its own runtime, which runs tasks: `reply = await agent.run("...")`."""

    _name: str
    _caller: _Caller
    runtime: SubAgentRuntime

    def __init__(self, channel: HostChannel, spec: jail_pb2.HostTarget) -> None:
        caller = _Caller(channel, _address(spec))
        doc = spec.doc or type(self).__doc__
        vars(self).update(__doc__=doc, _name=spec.name, _caller=caller, runtime=SubAgentRuntime(caller))

    def _instead(self, name: str) -> str:
        return f"{self._name}.runtime.update_variable({name!r}, value) sets a variable of that agent"

    async def run(self, task: str) -> AgentReply:
        """Runs the sub-agent on a task until it answers."""
        content, status, steps_taken = cast(
            "tuple[str, str, int]", await self._caller.acall("run", (task,), {})
        )
        return AgentReply(content, status, steps_taken)

    def __repr__(self) -> str:
        return f"<sub-agent {self._name}: await {self._name}.run(task); {self._name}.runtime>"


def stub_for(channel: HostChannel, spec: jail_pb2.HostTarget) -> object:
    """The stub for a thing of the client."""
    if spec.kind == jail_pb2.HostTarget.AGENT:
        return SubAgent(channel, spec)
    if spec.kind == jail_pb2.HostTarget.OBJECT:
        return HostObject(channel, spec)
    return function_stub(channel, _address(spec), spec)


def _address(spec: jail_pb2.HostTarget) -> str:
    return spec.address or spec.name
