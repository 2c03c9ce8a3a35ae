"""Lists, tuples, dicts, sets and their relatives from the standard library."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect
from cenote_security.values.node import Foreign, Immutable, Kind, Mutable, Node, NodeParts, Write

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder

_FACTORIES: dict[str, Callable[[], object] | None] = {
    "none": None,
    "list": list,
    "dict": dict,
    "set": set,
    "tuple": tuple,
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
}
"""What a defaultdict from a jail may call for a missing key."""


def _write_sequence(tag: str) -> Write:
    def write(encoder: Encoder, value: Foreign) -> Node:
        return [tag, None, encoder.run(list(value))]

    return write


def _write_mapping(tag: str) -> Write:
    def write(encoder: Encoder, value: Foreign) -> Node:
        frozen = dict(value)  # one step: another thread may be changing the original
        return [tag, None, encoder.run(list(frozen)), encoder.run(list(frozen.values()))]

    return write


def _write_deque(encoder: Encoder, value: deque[object]) -> Node:
    return ["deque", value.maxlen, encoder.run(list(value))]


def _write_defaultdict(encoder: Encoder, value: defaultdict[object, object]) -> Node:
    for name, factory in _FACTORIES.items():
        if value.default_factory is factory:
            return ["defaultdict", name, *_write_mapping("dict")(encoder, value)[2:]]
    raise UnsafeValueError("collections.defaultdict", "its default_factory is not a builtin type")


def _write_namespace(encoder: Encoder, value: SimpleNamespace) -> Node:
    frozen = dict(vars(value))
    return ["namespace", list(frozen), encoder.run(list(frozen.values()))]


def _shell(make: Callable[[], object]) -> Callable[[NodeParts], object]:
    def shell(_parts: NodeParts) -> object:
        return make()

    return shell


def _deque_shell(parts: NodeParts) -> object:
    return deque(maxlen=None if parts.meta is None else expect.integer(parts.meta, 0, 2**62))


def _defaultdict_shell(parts: NodeParts) -> object:
    return defaultdict(_FACTORIES[expect.choice(parts.meta, tuple(_FACTORIES))])


def _extend(shell: Foreign, parts: NodeParts) -> None:
    shell.extend(parts.runs[0])


def _fill_set(shell: set[object], parts: NodeParts) -> None:
    shell.update(parts.runs[0])
    if len(shell) != len(parts.runs[0]):
        expect.malformed("an element of a set is repeated")


def _fill_mapping(shell: Foreign, parts: NodeParts) -> None:
    pairs = zip(*parts.runs, strict=True)
    if type(shell) is Counter:
        dict.update(shell, pairs)  # its own `update` counts keys
    else:
        shell.update(pairs)
    if len(shell) != len(parts.runs[0]):
        expect.malformed("a key of a dict is repeated")


def _fill_namespace(shell: SimpleNamespace, parts: NodeParts) -> None:
    vars(shell).update(zip(expect.names(parts.meta), parts.runs[0], strict=True))


def _build_tuple(parts: NodeParts) -> object:
    return tuple(parts.runs[0])


def _build_frozenset(parts: NodeParts) -> object:
    return frozenset(parts.runs[0])


def _mapping_kind(shell: Callable[[NodeParts], object], *, frail: bool = False) -> Mutable:
    return Mutable(shell=shell, fill=_fill_mapping, runs=2, hashed=(0,), whole=frail, frail=frail)


WRITERS: dict[type, Write] = {
    list: _write_sequence("list"),
    tuple: _write_sequence("tuple"),
    set: _write_sequence("set"),
    frozenset: _write_sequence("frozenset"),
    dict: _write_mapping("dict"),
    OrderedDict: _write_mapping("ordered"),
    Counter: _write_mapping("counter"),
    deque: _write_deque,
    defaultdict: _write_defaultdict,
    SimpleNamespace: _write_namespace,
}

KINDS: dict[str, Kind] = {
    "list": Mutable(shell=_shell(list), fill=_extend),
    "tuple": Immutable(build=_build_tuple),
    "set": Mutable(shell=_shell(set), fill=_fill_set, hashed=(0,)),
    "frozenset": Immutable(build=_build_frozenset, hashed=(0,)),
    "dict": _mapping_kind(_shell(dict)),
    "ordered": _mapping_kind(_shell(OrderedDict)),
    "counter": _mapping_kind(_shell(Counter)),
    "defaultdict": _mapping_kind(_defaultdict_shell, frail=True),
    "deque": Mutable(shell=_deque_shell, fill=_extend),
    "namespace": Mutable(shell=_shell(SimpleNamespace), fill=_fill_namespace),
}
