"""From what a user wants in a namespace to one request that puts it there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from cenote.runtime.host_desk import Target
from cenote.runtime.injectables import Function, Injectable, Type, Variable
from cenote.runtime.pickling_unsafe import Pickled, dump
from cenote.runtime.references import ObjectReference
from cenote.runtime.sub_agents import is_agent, sub_agent_targets
from cenote.runtime.types_along import types_along
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import NameExistsError, NotTransferableError, UsageError
from cenote_worker.content import Content

MAX_DOC = 2_000
"""Characters of a host function's documentation that travel into the jail."""


@dataclass(slots=True)
class Parcel:
    """What one injection needs: values for the jail, things that stay here, classes that may come back."""

    values: Content
    """A pickle: of one value where `single` names it, else of two dictionaries: values, and classes that go along."""

    single: str = ""
    replaces: str = ""
    """The name whose former value need not be sent to later jails any more."""

    names: tuple[str, ...] = ()
    hosts: list[jail_pb2.HostTarget] = field(default_factory=list)
    targets: dict[tuple[str, str], Target] = field(default_factory=dict)
    classes: dict[str, type] = field(default_factory=dict)

    def request(
        self, *, replace: bool, channel: bool, descriptors: list[int], owned: list[Callable[[], None]]
    ) -> jail_pb2.Request:
        """The message; descriptors that travel with it are appended, and what has to be called once it is sent."""
        request = jail_pb2.Request()
        self.values.to_wire(request.inject.values, descriptors)
        if self.hosts:
            hosts = Content.pack([jail_pb2.HostTargets(targets=self.hosts).SerializeToString()])
            hosts.to_wire(request.inject.hosts, descriptors)
            owned.append(hosts.close)
        request.inject.replace = replace
        request.inject.name = self.single
        request.inject.has_host_channel = channel
        return request

    def close(self) -> None:
        self.values.close()


def pack(items: Iterable[Injectable]) -> list[Parcel]:
    """Everything in one pickle, so that what shared state goes on sharing it; references apart.

    Raises NameExistsError for two items with one name, NotTransferableError for a value that cannot be sent.
    """
    items = list(items)
    _check_names(items)
    values: dict[str, object] = {}
    parcels = []
    main = Parcel(values=_EMPTY)
    for item in items:
        if isinstance(item, Variable) and isinstance(item.value, ObjectReference):
            parcels.append(reference_parcel(item.name, item.value))
        elif stays_here(item):
            _offer(main, item)
        else:
            values[item.name] = _plain(item)
    if not values and not main.hosts:
        return parcels
    main.names = (*values, *(host.name for host in main.hosts))
    pickled = _dump(values, types_along(items))
    main.values = pickled.content
    main.classes = {**pickled.classes, **_named_classes(items)}
    return [main, *parcels]


def value_parcel(name: str, value: object) -> Parcel:
    """One value for one name, for an update."""
    if isinstance(value, ObjectReference):
        return reference_parcel(name, value)
    pickled = _dump({name: value}, types_along([Variable(name, value)]))
    return Parcel(values=pickled.content, replaces=name, names=(name,), classes=pickled.classes)


def reference_parcel(name: str, reference: ObjectReference) -> Parcel:
    return Parcel(values=reference.content(), single=name, replaces=name, names=(name,))


def stays_here(item: Injectable) -> bool:
    """Whether the item lives in the client and the jail gets a stub."""
    if isinstance(item, Function):
        return item.host
    return isinstance(item, Variable) and (item.host or is_agent(item.value))


_EMPTY = Content(size=0, count=0, inline=b"")


def _check_names(items: list[Injectable]) -> None:
    seen: set[str] = set()
    for item in items:
        if not isinstance(item, Variable | Function | Type):
            raise UsageError(f"inject takes Variable, Function or Type, not {type(item).__name__}")
        if item.name in seen:
            raise NameExistsError(item.name)
        seen.add(item.name)


def _plain(item: Injectable) -> object:
    return item.func if isinstance(item, Function) else item.value


def _dump(values: Mapping[str, object], along: Mapping[str, type]) -> Pickled:
    """One pickle of all; when that fails, the error names the one that is to blame."""
    names = ", ".join(values)
    try:
        return dump(names, (dict(values), dict(along)))
    except NotTransferableError:
        for name, value in values.items():
            dump(name, value).content.close()
        # The values can go, so a class cannot: nobody asked for it by name, and what can go does.
        return dump(names, (dict(values), {name: cls for name, cls in along.items() if _can_go(cls)}))


def _can_go(cls: type) -> bool:
    try:
        dump(cls.__name__, cls).content.close()
    except NotTransferableError:
        return False
    return True


# -- things that stay in the client --


def _offer(parcel: Parcel, item: Injectable) -> None:
    spec = jail_pb2.HostTarget(name=item.name)
    if isinstance(item, Function):
        spec.kind = jail_pb2.HostTarget.FUNCTION
        spec.doc = _doc(item.func, item.description)
        spec.is_async = item.is_async
        spec.signature = signature_text(item.func)
        parcel.targets[item.name, ""] = item.func
    elif isinstance(item, Variable) and is_agent(item.value) and not item.host:
        spec.kind = jail_pb2.HostTarget.AGENT
        spec.doc = item.description or ""
        for method, target in sub_agent_targets(item.value).items():
            parcel.targets[item.name, method] = target
    elif isinstance(item, Variable):
        spec.kind = jail_pb2.HostTarget.OBJECT
        spec.doc = _doc(item.value, item.description)
        _offer_methods(parcel, item, spec)
    parcel.hosts.append(spec)


def _offer_methods(parcel: Parcel, item: Variable, spec: jail_pb2.HostTarget) -> None:
    for name in dir(type(item.value)):
        # Looked up on the class first: a property of a live object must not be run by listing it.
        if name.startswith("_") or isinstance(inspect.getattr_static(item.value, name, None), property):
            continue
        method = getattr(item.value, name, None)
        if not callable(method) or isinstance(method, type):
            continue
        spec.methods.add(
            name=name,
            doc=_doc(method, None),
            is_async=inspect.iscoroutinefunction(method),
            signature=signature_text(method),
        )
        parcel.targets[item.name, name] = method


def _doc(thing: object, description: str | None) -> str:
    return (description or inspect.getdoc(thing) or "")[:MAX_DOC]


def signature_text(function: object) -> str:
    """`(name: str, count: int = 1) -> bool`, or empty where there is none to be had."""
    try:
        return str(inspect.signature(function))[:MAX_DOC]  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""


# -- classes that go along --


def _named_classes(items: list[Injectable]) -> dict[str, type]:
    named = [item.value for item in items if isinstance(item, Type)]
    named += [type(item.value) for item in items if isinstance(item, Variable) and not stays_here(item)]
    return {f"{cls.__module__}:{cls.__qualname__}": cls for cls in named if cls.__module__ != "builtins"}
