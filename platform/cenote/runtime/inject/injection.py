"""From what a user wants in a namespace to one request that puts it there.

The user's classes go along, so that code in the jail can name what it is given: the classes of values, of the
elements of containers, and those that annotations mention: of functions, of fields, of public methods, as deep as
they go. A prompt shows the same ones. Of an agent, its methods can be called from another agent's namespace.
"""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType, MethodType
from typing import Any

from cenote.runtime.inject.annotations import classes_in, declares_fields, hints_of
from cenote.runtime.inject.host_function_server import Target
from cenote.runtime.inject.injectables import Function, Injectable, Type, Variable
from cenote.runtime.inject.pickling_unsafe import AsData, DataOnly, PickledValue, dump, is_foreign
from cenote.runtime.inject.references import ObjectReference, Sealed
from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import jail_pb2
from cenote_security.errors import NameExistsError, NotTransferableError, UnknownNameError, UsageError
from cenote_worker.history.events import EFFECTS
from cenote_worker.runtime.injection import NOTHING, Injection


def is_agent(value: object) -> bool:
    """Whether the value is an agent: something that runs tasks on a runtime of its own."""
    return inspect.iscoroutinefunction(getattr(type(value), "run", None)) and hasattr(type(value), "runtime")


def sub_agent_targets(agent: Any) -> dict[str, Target]:
    """What an orchestrator's code may call, by method name. Values pass sealed, from jail to jail."""

    async def run(task: str) -> tuple[str, str, int]:
        response = await agent.run(str(task))
        return (
            str(response.content),
            str(getattr(response.status, "value", response.status)),
            response.steps_taken,
        )

    def update_variable(name: str, value: Sealed) -> None:
        runtime = _blocking(agent)
        try:
            runtime.update_variable(name, value.reference)
        # A caller may hand over data that the maker of the agent did not foresee.
        except UnknownNameError:
            runtime.inject(Variable(name, value.reference))

    def retrieve(name: str) -> Sealed:
        return Sealed(_blocking(agent).share(name))

    def share(name: str) -> object:
        return _blocking(agent).share(name)

    def describe() -> list[dict[str, object]]:
        return [
            {"name": info.name, "type": info.type, "shape": info.shape, "description": info.description}
            for info in _blocking(agent).describe()
        ]

    return {
        "run": run,
        "runtime.update_variable": update_variable,
        "runtime.retrieve": retrieve,
        "runtime.share": share,
        "runtime.describe": describe,
    }


def _blocking(agent: Any) -> Any:
    """The agent's runtime with calls that block; host calls have a thread to do so."""
    from cenote.runtime.faces.sync import PythonRuntime

    return PythonRuntime.over(agent.runtime.core)


PEEK = 3
"""Elements of a container that are looked at."""

DEPTH = 4
"""Containers in containers that are looked into."""

MAX_CLASSES = 200
"""More classes than that are a framework, not a user's data model."""


def types_along(items: Iterable[Injectable]) -> dict[str, type]:
    """The classes by name; of two with one name, the one nearest to the items."""
    found: dict[str, type] = {}
    seen: set[type] = set()
    waiting = deque((cls, _stays(item, cls)) for item in items for cls in _named_by(item))
    while waiting and len(found) < MAX_CLASSES:
        cls, stays = waiting.popleft()
        if cls in seen or not is_foreign(cls):
            continue
        seen.add(cls)
        if cls.__name__.isidentifier():
            found.setdefault(cls.__name__, cls)
        # What stays in the client keeps its own machinery there.
        mentioned = () if stays else _mentioned_by_class(cls)
        waiting.extend((each, False) for each in mentioned)
    return found


def _named_by(item: Injectable) -> Iterator[type]:
    if isinstance(item, Function):
        mentioned = _mentioned(item.func)
        # By value, a service's class would bring its code along, and what that refers to.
        yield from _records(mentioned) if item.host and item.by_value else mentioned
    elif isinstance(item, Type):
        yield from _mentioned_by_class(item.value)
    elif item.host:
        yield from _records(_mentioned_by_class(type(item.value)))
    elif not is_agent(item.value) and not isinstance(item.value, ObjectReference):
        yield from _held(item.value, DEPTH)


def _stays(item: Injectable, cls: type) -> bool:
    """Whether a class is there by name alone: a plain one in the signature of what runs in the client."""
    return isinstance(item, Function) and item.host and not declares_fields(cls)


def _records(classes: Iterable[type]) -> Iterator[type]:
    """What stays in the client keeps its own machinery there: only what may be an argument or a result goes along."""
    return (cls for cls in classes if declares_fields(cls))


def _held(value: object, depth: int) -> Iterator[type]:
    yield type(value)
    if depth == 0:
        return
    elements: Iterable[object] = ()
    if isinstance(value, dict):
        elements = value.values()
    elif isinstance(value, list | tuple | set | frozenset | deque):
        elements = value
    for _, element in zip(range(PEEK), elements, strict=False):
        yield from _held(element, depth - 1)


def _mentioned_by_class(cls: type) -> Iterator[type]:
    yield from _mentioned(cls)
    for name, member in vars(cls).items():
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if inspect.isfunction(function) and not name.startswith("_"):
            yield from _mentioned(function)


def _mentioned(target: object) -> Iterator[type]:
    for annotation in hints_of(target).values():
        yield from classes_in(annotation)


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
    sent: set[type] = field(default_factory=set)
    """Classes that go to the namespace by value."""
    whole: set[tuple[str, str]] = field(default_factory=set)
    """Those of the targets whose results go by value."""

    @property
    def names(self) -> str:
        """What an error calls it."""
        return ", ".join(self.injection.names)


def pack(
    items: Iterable[Injectable], place: str, prefix: str = "", sent: Collection[type] = ()
) -> list[Parcel]:
    """Everything in one pickle, so that what shared state goes on sharing it; references apart.

    place: of the runtime, as a Backend has it. prefix: of the addresses of what stays here. sent: classes that are
    there by value. Raises NameExistsError for two items with one name, NotTransferableError for a value that cannot
    be sent.
    """
    items = list(items)
    _check_names(items)
    values: dict[str, object] = {}
    parcels = []
    hosts: list[jail_pb2.HostTarget] = []
    targets: dict[tuple[str, str], Target] = {}
    whole: set[tuple[str, str]] = set()
    for item in items:
        if isinstance(item, Variable) and isinstance(item.value, ObjectReference):
            parcels.append(_reference_parcel(item.name, item.value, place))
        elif stays_here(item):
            offered: dict[tuple[str, str], Target] = {}
            hosts.append(_offer(offered, item, prefix))
            targets.update(offered)
            whole.update(offered if _gives_whole(item) else ())
        else:
            values[item.name] = _plain(item)
    if not values and not hosts:
        return parcels
    data = DataOnly(sent)
    records = types_along(item for item in items if stays_here(item) and not _gives_whole(item))
    along = types_along(item for item in items if not stays_here(item) or _gives_whole(item))
    names = (*values, *(host.name for host in hosts))
    alone = None if hosts or along or records else _large_alone(values)
    pickled = alone or _dump(values, along, {name: AsData(cls, data) for name, cls in records.items()})
    single = names[0] if alone is not None else ""
    injection = Injection(values=pickled.content, single=single, names=names, hosts=tuple(hosts))
    parcel = Parcel(
        injection=injection,
        targets=targets,
        classes={**pickled.records, **pickled.classes, **_named_classes(items)},
        sent=_own(pickled.classes),
        whole=whole,
    )
    return [parcel, *parcels]


def value_parcel(name: str, value: object, place: str) -> Parcel:
    """One value for one name, for an update. place: of the runtime. Blocks for a reference to a value elsewhere."""
    if isinstance(value, ObjectReference):
        return _reference_parcel(name, value, place)
    values, along = {name: value}, types_along([Variable(name, value)])
    alone = None if along else _large_alone(values)
    pickled = alone or _dump(values, along, {})
    single = name if alone is not None else ""
    injection = Injection(values=pickled.content, single=single, replaces=name, names=(name,))
    return Parcel(injection=injection, classes=pickled.classes, sent=_own(pickled.classes))


def names_parcel(names: Sequence[str], reference: ObjectReference, place: str) -> Parcel:
    """Several variables of another runtime that were shared as one value. place: of the runtime that takes them."""
    single = names[0] if names else _NO_NAME
    replaces = single if len(names) == 1 else ""
    found = _reference_parcel(single, reference, place)
    return replace(found, injection=replace(found.injection, names=tuple(names), replaces=replaces))


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


def _gives_whole(item: Injectable) -> bool:
    """Whether what it gives goes by value; else it goes as data."""
    return isinstance(item, Function | Variable) and item.by_value


def _own(classes: Mapping[str, type]) -> set[type]:
    return {cls for cls in classes.values() if is_foreign(cls)}


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


def _large_alone(values: Mapping[str, object]) -> PickledValue | None:
    """The pickle of the only value, if it has memory of its own: memory that has nothing else can be shared again.

    Raises NotTransferableError.
    """
    if len(values) != 1:
        return None
    ((name, value),) = values.items()
    pickled = dump(name, value)
    return pickled if pickled.content.memory is not None else None


def _dump(
    values: Mapping[str, object], along: Mapping[str, type], records: Mapping[str, AsData]
) -> PickledValue:
    """One pickle of all; when that fails, the error names the one that is to blame.

    along, records: classes that go along by value, and as data.
    """
    names = ", ".join(values)
    as_data = {name: record for name, record in records.items() if name not in along}
    try:
        # What goes as data comes last: of classes that went by value before, there is one.
        return dump(names, (dict(values), {**along, **as_data}))
    except NotTransferableError:
        for name, value in values.items():
            dump(name, value).content.close()
        # The values can go, so a class cannot: the user did not name it, and the others go.
        classes: dict[str, type | AsData] = {**along, **as_data}
        return dump(names, (dict(values), {name: cls for name, cls in classes.items() if _can_go(name, cls)}))


def _can_go(name: str, cls: type | AsData) -> bool:
    try:
        dump(name, cls).content.close()
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
        spec.qualname = utf8_text(_exact_name(item.func))
        spec.is_bound = isinstance(item.func, MethodType)
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
            qualname=_exact_name(method),
            is_bound=isinstance(method, MethodType),
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
    """`(name: str, count: int = 1) -> bool`, or empty where there is none to be had.

    The value of a default is in it where the function itself spells it out: `key=API_KEY` is `key=...`.
    """
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
        return str(signature.replace(parameters=_shown(function, signature)))[:MAX_DOC]
    except (TypeError, ValueError):
        return ""


def _exact_name(function: object) -> str:
    """The qualified name of a function that takes what its signature says; empty where a decorator, or the function
    itself, may say something else than what it takes."""
    if isinstance(function, MethodType):
        function = function.__func__
    if not isinstance(function, FunctionType) or not {"__wrapped__", "__signature__"}.isdisjoint(
        vars(function)
    ):
        return ""
    return function.__qualname__[:MAX_DOC]


def _shown(function: object, signature: inspect.Signature) -> list[inspect.Parameter]:
    parameters = list(signature.parameters.values())
    doubtful = {
        each.name for each in parameters if each.default is not each.empty and not _is_number(each.default)
    }
    doubtful -= _spelled_out(function) if doubtful else set()
    return [
        each.replace(default=_Hidden(each.default)) if each.name in doubtful else each for each in parameters
    ]


def _is_number(default: object) -> bool:
    return default is None or type(default) in (bool, int, float, complex)


def _spelled_out(function: Any) -> set[str]:
    """The parameters whose defaults are literals in the source of the function; none where there is no source."""
    try:
        lines = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
        (node,) = ast.parse(lines).body
    except (OSError, TypeError, ValueError, SyntaxError):
        return set()
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    positional = [*node.args.posonlyargs, *node.args.args]
    pairs = [
        *zip(reversed(positional), reversed(node.args.defaults), strict=False),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ]
    return {argument.arg for argument, default in pairs if _is_literal(default)}


def _is_literal(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(map(_is_literal, node.elts))
    return isinstance(node, ast.Constant)


class _Hidden:
    """Shows of a default that there is one, and the member where it is one of an Enum."""

    def __init__(self, value: object) -> None:
        self._text = f"{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else "..."

    def __repr__(self) -> str:
        return self._text


# -- classes that go along --


def _named_classes(items: list[Injectable]) -> dict[str, type]:
    named = [item.value for item in items if isinstance(item, Type)]
    named += [type(item.value) for item in items if isinstance(item, Variable) and not stays_here(item)]
    return {f"{cls.__module__}:{cls.__qualname__}": cls for cls in named if cls.__module__ != "builtins"}
