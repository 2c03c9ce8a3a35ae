"""From what a user wants in a namespace to one request that puts it there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cenote.runtime.host_desk import Target
from cenote.runtime.injectables import Function, Injectable, Type, Variable
from cenote.runtime.pickling_unsafe import Pickled, dump
from cenote.runtime.references import ObjectReference, Sealed
from cenote.runtime.sub_agents import is_agent, sub_agent_targets
from cenote.runtime.types_along import types_along
from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import NameExistsError, NotTransferableError, UsageError
from cenote_worker.history.host_effects import EFFECTS
from cenote_worker.hosted.injection import NOTHING, Injection

_NO_NAME = "_"
"""Stands for what has no variable in it."""

MAX_DOC = 2_000
"""Characters of a host function's documentation that travel into the jail."""


@dataclass(slots=True, kw_only=True)
class Parcel:
    """What one injection needs: what goes to the namespace, things that stay here, classes that may come back."""

    injection: Injection
    targets: dict[tuple[str, str], Target] = field(default_factory=dict)
    classes: dict[str, type] = field(default_factory=dict)

    @property
    def names(self) -> str:
        """What an error calls it."""
        return ", ".join(self.injection.names)


def pack(items: Iterable[Injectable], place: str, prefix: str = "") -> list[Parcel]:
    """Everything in one pickle, so that what shared state goes on sharing it; references apart.

    place: of the runtime, as a Backend has it. prefix: of the addresses of what stays here. Raises NameExistsError
    for two items with one name, NotTransferableError for a value that cannot be sent.
    """
    items = list(items)
    _check_names(items)
    values: dict[str, object] = {}
    parcels = []
    hosts: list[jail_pb2.HostTarget] = []
    targets: dict[tuple[str, str], Target] = {}
    for item in items:
        if isinstance(item, Variable) and isinstance(item.value, ObjectReference):
            parcels.append(_reference_parcel(item.name, item.value, place))
        elif stays_here(item):
            hosts.append(_offer(targets, item, prefix))
        else:
            values[item.name] = _plain(item)
    if not values and not hosts:
        return parcels
    pickled = _dump(values, types_along(items))
    names = (*values, *(host.name for host in hosts))
    injection = Injection(values=pickled.content, names=names, hosts=tuple(hosts))
    classes = {**pickled.classes, **_named_classes(items)}
    return [Parcel(injection=injection, targets=targets, classes=classes), *parcels]


def value_parcel(name: str, value: object, place: str) -> Parcel:
    """One value for one name, for an update. place: of the runtime. Blocks for a reference to a value elsewhere."""
    if isinstance(value, ObjectReference):
        return _reference_parcel(name, value, place)
    pickled = _dump({name: value}, types_along([Variable(name, value)]))
    injection = Injection(values=pickled.content, replaces=name, names=(name,))
    return Parcel(injection=injection, classes=pickled.classes)


def names_parcel(names: Sequence[str], reference: ObjectReference, place: str) -> Parcel:
    """Several variables of another runtime that were shared as one value. place: of the runtime that takes them."""
    single = names[0] if names else _NO_NAME
    replaces = single if len(names) == 1 else ""
    found = _reference_parcel(single, reference, place)
    found.injection.names, found.injection.replaces = tuple(names), replaces
    return found


def _reference_parcel(name: str, reference: ObjectReference, place: str) -> Parcel:
    holding = reference.holding
    if place and holding.place == place:
        injection = Injection(values=NOTHING, reference=holding.id, single=name, replaces=name, names=(name,))
    else:
        injection = Injection(values=reference.content(), single=name, replaces=name, names=(name,))
    return Parcel(injection=injection)


def stays_here(item: Injectable) -> bool:
    """Whether the item lives in the client and the jail gets a stub."""
    if isinstance(item, Function):
        return item.host
    return isinstance(item, Variable) and (item.host or is_agent(item.value))


def _hint(item: object) -> str:
    """How to wrap what is not wrapped; empty for anything that needs a name first."""
    if isinstance(item, type):
        return f"; write Type({item.__name__})"
    name = getattr(item, "__name__", "")
    return f"; write Function({name})" if callable(item) and name.isidentifier() else ""


def _check_names(items: list[Injectable]) -> None:
    seen: set[str] = set()
    for item in items:
        if not isinstance(item, Variable | Function | Type):
            raise UsageError(
                f"inject takes Variable, Function or Type, not {type(item).__name__}{_hint(item)}"
            )
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


def _offer(targets: dict[tuple[str, str], Target], item: Injectable, prefix: str) -> jail_pb2.HostTarget:
    """What a jail is told of the item; what it may call of it is added to `targets`."""
    address = prefix + item.name
    spec = make(jail_pb2.HostTarget, name=item.name, address=address if prefix else "")
    if isinstance(item, Function):
        spec.kind = jail_pb2.HostTarget.FUNCTION
        spec.effect = EFFECTS[item.effect]
        spec.doc = utf8_text(_doc(item.func, item.description))
        spec.is_async = item.is_async
        spec.signature = utf8_text(signature_text(item.func))
        targets[address, ""] = item.func
    elif isinstance(item, Variable) and is_agent(item.value) and not item.host:
        spec.kind = jail_pb2.HostTarget.AGENT
        spec.doc = utf8_text(item.description or "")
        for method, target in sub_agent_targets(item.value).items():
            targets[address, method] = target
    elif isinstance(item, Variable):
        spec.kind = jail_pb2.HostTarget.OBJECT
        spec.doc = utf8_text(_doc(item.value, item.description))
        _offer_methods(targets, item, spec, address)
    return spec


def _offer_methods(
    targets: dict[tuple[str, str], Target], item: Variable, spec: jail_pb2.HostTarget, address: str
) -> None:
    for name in dir(type(item.value)):
        # Looked up on the class first: a property of a live object must not be run by listing it.
        if name.startswith("_") or isinstance(inspect.getattr_static(item.value, name, None), property):
            continue
        method = getattr(item.value, name, None)
        if not callable(method) or isinstance(method, type):
            continue
        make(
            spec.methods.add,
            name=name,
            doc=_doc(method, None),
            is_async=inspect.iscoroutinefunction(method),
            signature=signature_text(method),
            takes_value=_takes_value(method),
        )
        targets[address, name] = method


def _takes_value(method: Callable[..., object]) -> bool:
    """Whether it is a method of `(name, value: Sealed)`: whatever it is given stays closed on its way."""
    annotations = getattr(method, "__annotations__", {})
    return annotations.get("value") in (Sealed, Sealed.__name__)


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
