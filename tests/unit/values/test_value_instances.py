"""Instances are rebuilt with the reader's own classes, field by field, without running their code."""

from __future__ import annotations

import enum
import threading
from collections import namedtuple
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import pytest

from cenote_security.errors import MalformedValueError, UnsafeValueError
from cenote_security.values import encode
from cenote_security.values.decoder import class_table, load

T = TypeVar("T")


class Light(enum.Enum):
    RED = "r"
    STOP = "r"
    GREEN = "g"


class Level(enum.IntEnum):
    LOW = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Order:
    number: int
    items: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Point:
    x: Any
    y: Any = 0


@dataclass(slots=True)
class Slotted:
    a: int
    b: str = "b"


@dataclass(frozen=True, slots=True)
class FrozenSlotted:
    a: int


@dataclass
class Noisy:
    value: int
    ran: int = 0

    def __post_init__(self) -> None:
        raise AssertionError("code of the class ran")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError("code of the class ran")


@dataclass
class Cached:
    base: int

    @cached_property
    def double(self) -> int:
        return 2 * self.base


@dataclass
class Box(Generic[T]):
    content: T


class Pair(NamedTuple):
    left: Any
    right: Any = None


Triple = namedtuple("Triple", "a b c")


class Plain:
    def __init__(self) -> None:
        self.name = "plain"
        self.me = self

    def save(self) -> str:
        return "saved"

    @property
    def balance(self) -> int:
        return 1

    @balance.setter
    def balance(self, value: int) -> None:
        raise AssertionError("a setter ran")


class WithSlots:
    __slots__ = ("a", "never")

    def __init__(self) -> None:
        self.a = 1


class ByPickle:
    def __reduce__(self) -> Any:
        return (print, ("code ran",))


class ByState:
    def __setstate__(self, state: Any) -> None:
        raise AssertionError("code of the class ran")


class OfList(list[int]):
    pass


ALL = [Light, Level, Access, Order, Point, Slotted, FrozenSlotted, Noisy, Cached, Box, Pair, Triple, Plain]


def roundtrip(value: Any, *classes: type) -> Any:
    encoded = encode(value)
    return load(encoded.header, encoded.region(), classes=classes or ALL)


@pytest.mark.parametrize(
    "value",
    [
        Light.RED, Level.LOW, Access.READ, Access.READ | Access.WRITE, Access(0), Order(1, [2]), Point(1),
        Point((1,), frozenset({2})), Slotted(1), FrozenSlotted(2), Box(Box(1)), Pair(1, [2]), Triple(1, 2, 3),
        {Point(1): Pair(Point(2)), Light.GREEN: {Point(3)}},
    ],
    ids=str,
)  # fmt: skip
def test_an_instance_comes_back_equal(value: Any) -> None:
    """Of the same class, with equal fields."""
    found = roundtrip(value)
    assert (type(value), value) == (type(found), found)


def test_enum_members_are_the_reader_s_own() -> None:
    """Identity, which code compares by, is preserved; an alias becomes the member that it names."""
    assert Light.RED is roundtrip(Light.STOP)


def test_no_code_of_the_class_runs() -> None:
    """Neither `__init__`, `__post_init__` nor `__setattr__`."""
    noisy = object.__new__(Noisy)
    noisy.__dict__.update(value=1, ran=0)
    assert {"value": 1, "ran": 0} == vars(roundtrip(noisy))


def test_a_plain_object_keeps_attributes_and_cycles() -> None:
    """Its own dict is restored, with a reference to itself."""
    found = roundtrip(Plain())
    assert found.me is found
    assert "plain" == found.name


def test_unset_slots_stay_unset() -> None:
    """An unset slot stays unset."""
    found = roundtrip(WithSlots(), WithSlots)
    assert (1, False) == (found.a, hasattr(found, "never"))


def test_a_cached_property_is_left_behind() -> None:
    """It is not a field, and is computed again on access."""
    value = Cached(2)
    assert 4 == value.double
    found = roundtrip(value)
    assert ({"base": 2}, 4) == (dict(vars(found)), found.double)


def test_other_attributes_of_a_dataclass_are_not_lost_silently() -> None:
    """An attribute that is not a field has no place, and the error has its name."""
    value = Order(1)
    value.extra = 2  # type: ignore[attr-defined]
    with pytest.raises(UnsafeValueError, match="extra is no field"):
        encode(value)


def test_frozen_instances_are_keys() -> None:
    """A key is complete, so that it can be hashed, before it is put into a dict or a set."""
    found = roundtrip({Point(Point((1, 2)), "y"): "found"})
    assert "found" == found[Point(Point((1, 2)), "y")]


def test_instances_with_identity_hash_in_sets_in_cycles() -> None:
    """A graph of nodes that hold each other in sets."""
    one, two = Plain(), Plain()
    one.edges, two.edges = {two}, {one, two}  # type: ignore[attr-defined]
    found = roundtrip(one)
    (other,) = found.edges
    assert {found, other} == other.edges


def test_a_class_that_was_not_named_is_refused_by_name() -> None:
    """The error names the class to add."""
    with pytest.raises(UnsafeValueError) as caught:
        roundtrip([Point(Order(1))], Point)
    assert f"{__name__}.Order" == caught.value.class_name
    assert "classes=[...]" in str(caught.value)


@pytest.mark.parametrize(
    "value", [ByPickle(), ByState(), OfList(), threading.Thread()], ids=lambda v: type(v).__name__
)
def test_a_class_with_pickling_of_its_own_is_refused(value: Any) -> None:
    """Its `__reduce__` or `__setstate__` would be code of the value's maker, or of the class, on hostile state."""
    with pytest.raises(UnsafeValueError, match="trusted=True"):
        roundtrip(value, type(value))


def header(*nodes: str) -> bytes:
    return f"[1,[{len(nodes) - 1}],[{','.join(nodes)}]]".encode()


def reference(cls: type) -> str:
    (name,) = class_table([cls])
    return name


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (["instance", Order, ["number"], "[1]"], "fields of"),
        (["instance", Order, ["number", "items", "number"], "[1,2,3]"], "repeated"),
        (["instance", Order, ["number", "items", "more"], "[1,2,3]"], "fields of"),
        (["instance", Order, ["number", "items"], "[1]"], "zip"),
        (["instance", Plain, ["__class__"], "[1]"], "special"),
        (["instance", Plain, ["__dict__"], "[1]"], "special"),
        (["instance", Plain, ["save"], "[1]"], "hides the method save"),
        (["instance", Plain, ["balance"], "[1]"], "hides the method balance"),
        (["instance", Light, [], "[]"], "another way"),
        (["instance", Pair, ["left"], "[1]"], "another way"),
        (["member", Light, "__init__", None], "no such member"),
        (["member", Light, "_value_", None], "no such member"),
        (["member", Order, "number", None], "another way"),
        (["flag", Access, 1 << 70, None], "too long"),
        (["flag", Access, 1.5, None], "integer"),
        (["flag", Light, 1, None], "another way"),
        (["named", Triple, None, "[1,2]"], "3 fields"),
        (["named", Order, None, "[1,2]"], "another way"),
        (["model", Order, [[], [], [], []], "[],[],[]"], "another way"),
    ],
    ids=lambda value: str(value[:2]) if isinstance(value, list) else "",
)
def test_a_jail_cannot_decide_how_a_class_is_filled(node: list[Any], reason: str) -> None:
    """The reader's class decides: its kind, its fields, its methods."""
    import json

    tag, cls, detail, run = node
    meta = reference(cls) if tag == "named" else [reference(cls), detail]
    text = f'["{tag}",{json.dumps(meta)}{"," + run if run else ""}]'
    with pytest.raises(MalformedValueError, match=reason):
        load(header(text), classes=ALL)


def test_a_name_from_a_jail_imports_nothing() -> None:
    """A class that exists but was not named is as unknown as any other."""
    with pytest.raises(UnsafeValueError, match=r"subprocess\.Popen"):
        load(header('["instance",["subprocess:Popen",[]],[]]'), classes=ALL)


def test_a_class_whose_instances_only_c_can_make_is_refused() -> None:
    """Even if the reader names it."""
    with pytest.raises(UnsafeValueError):
        load(header('["instance",["_thread:lock",[]],[]]'), classes={"_thread:lock": type(threading.Lock())})


def test_class_table_takes_classes_only() -> None:
    """A usage error has the given value."""
    with pytest.raises(ValueError, match="not str"):
        class_table(["Order"])  # type: ignore[list-item]
