"""From what a user wants in a namespace to one request that puts it there."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cenote.runtime.host_desk import Target
from cenote.runtime.injectables import Function, Injectable, Type, Variable
from cenote.runtime.pickling_unsafe import dump, is_foreign
from cenote.runtime.references import ObjectReference
from cenote.runtime.sub_agents import is_agent, sub_agent_targets
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import NameExistsError, UsageError
from cenote_worker.content import Content

MAX_DOC = 2_000
"""Characters of a host function's documentation that travel into the jail."""

PEEK = 3
"""Elements of a container that are looked at for classes to inject along."""


@dataclass(slots=True)
class Parcel:
    """What one injection needs: values for the jail, things that stay here, classes that may come back."""

    values: Content
    single: str = ""
    """When set, `values` is one value for this name; otherwise a dictionary."""

    names: tuple[str, ...] = ()
    hosts: list[jail_pb2.HostTarget] = field(default_factory=list)
    targets: dict[tuple[str, str], Target] = field(default_factory=dict)
    classes: dict[str, type] = field(default_factory=dict)

    def request(self, *, replace: bool, channel: bool, descriptors: list[int]) -> jail_pb2.Request:
        """The message; descriptors that travel with it are appended."""
        request = jail_pb2.Request()
        self.values.to_wire(request.inject.values, descriptors)
        request.inject.replace = replace
        request.inject.name = self.single
        request.inject.hosts.extend(self.hosts)
        request.inject.has_host_channel = channel
        return request

    def close(self) -> None:
        self.values.close()


def pack(items: Iterable[Injectable], taken: Iterable[str] = ()) -> list[Parcel]:
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
    _add_types(values, items, set(taken))
    main.names = (*values, *(host.name for host in main.hosts))
    pickled = _dump(values)
    main.values = pickled.content
    main.classes = {**pickled.classes, **_named_classes(items)}
    return [main, *parcels]


def value_parcel(name: str, value: object) -> Parcel:
    """One value for one name, for an update."""
    if isinstance(value, ObjectReference):
        return reference_parcel(name, value)
    pickled = dump(name, value)
    return Parcel(values=pickled.content, single=name, names=(name,), classes=pickled.classes)


def reference_parcel(name: str, reference: ObjectReference) -> Parcel:
    return Parcel(values=reference.content(), single=name, names=(name,))


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


def _dump(values: Mapping[str, object]) -> Any:
    """One pickle of all; when that fails, the error names the one that is to blame."""
    try:
        return dump(", ".join(values), dict(values))
    except Exception:
        for name, value in values.items():
            dump(name, value).content.close()
        raise


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
        return str(inspect.signature(function))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""


# -- classes that go along --


def _named_classes(items: list[Injectable]) -> dict[str, type]:
    named = [item.value for item in items if isinstance(item, Type)]
    named += [type(item.value) for item in items if isinstance(item, Variable) and not stays_here(item)]
    return {f"{cls.__module__}:{cls.__qualname__}": cls for cls in named if cls.__module__ != "builtins"}


def _add_types(values: dict[str, object], items: list[Injectable], taken: set[str]) -> None:
    """A user's class comes with its values and with functions that take or give it."""
    for item in items:
        for cls in _types_of(item):
            if is_foreign(cls) and cls.__name__ not in taken and cls.__name__.isidentifier():
                values.setdefault(cls.__name__, cls)


def _types_of(item: Injectable) -> list[type]:
    if isinstance(item, Function):
        return _annotated(item.func)
    if isinstance(item, Type) or stays_here(item) or isinstance(item.value, ObjectReference):
        return []
    found = [type(item.value)]
    if isinstance(item.value, dict):
        found += [type(value) for value in list(item.value.values())[:PEEK]]
    elif isinstance(item.value, list | tuple | set | frozenset):
        found += [type(value) for value in list(item.value)[:PEEK]]
    return found


def _annotated(function: object) -> list[type]:
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001  (annotations may name anything, or nothing that exists)
        return []
    found: list[type] = []
    for hint in hints.values():
        found += [part for part in (hint, *typing.get_args(hint)) if isinstance(part, type)]
    return found
