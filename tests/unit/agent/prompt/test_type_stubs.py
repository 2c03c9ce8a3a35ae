"""Classes as a model needs them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from datetime import date
from enum import Enum
from typing import NamedTuple, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, Field

from cenote.agent.prompt.stubs import class_doc, is_own, records_in, type_stub


class Size(Enum):
    S = "s"
    M = "m"


@dataclasses.dataclass
class Item:
    """One line of an order."""

    id: str
    price: float = 0.0
    tags: list[str] = dataclasses.field(default_factory=list)
    size: Size = Size.M
    _cache: int = 0

    def total(self, count: int = 1) -> float:
        """Price of several."""
        return self.price * count

    def _hidden(self) -> None: ...


class Order(BaseModel):
    id: str = Field(description="begins with #")
    items: list[Item]
    count: int = Field(default=1, ge=1, le=9)
    note: str | None = None


class Bare(BaseModel):
    a: int
    b: list[str] = Field(default_factory=list)


class Row(TypedDict):
    id: int
    note: NotRequired[str]


class Point(NamedTuple):
    x: int
    y: int = 0


class Light:
    """A smart light."""

    brightness: int

    def __init__(self, name: str, brightness: int = 100) -> None:
        self.name = name

    @property
    def is_on(self) -> bool:
        """Whether it shines."""
        return True

    def dim(self, level: int) -> None:
        """Set the brightness, 0 to 100."""

    async def blink(self, times: int = 3) -> None: ...

    @classmethod
    def broken(cls) -> Light: ...

    @staticmethod
    def watts(hours: float) -> float: ...


class Lamp(Light):
    def dim(self, level: int, slowly: bool = False) -> None: ...


class Node(BaseModel):
    children: list[Node] = []


class Shelf:
    def fits(self, size: Size) -> bool: ...


def uses(order: Order, row: Row | None, when: date, counts: Counter[Size]) -> dict[str, Point]: ...


def test_a_record_is_one_line() -> None:
    """Fields with types and defaults; private ones are omitted."""
    assert [
        "Item(id: str, price: float = 0.0, tags: list[str] = [], size: Size = Size.M)  # One line of an order",
        "  total(count: int = 1) -> float  # Price of several",
    ] == type_stub(Item, class_doc(Item)).split("\n")
    assert "Bare(a: int, b: list[str] = [])" == type_stub(Bare)
    assert "Point(x: int, y: int = 0)" == type_stub(Point)


def test_documented_fields_have_a_line_each() -> None:
    """Descriptions and constraints of pydantic fields are part of the contract."""
    assert [
        "class Order",
        "  id: str  # begins with #",
        "  items: list[Item]",
        "  count: int = 1  # >=1, <=9",
        "  note: str | None = None",
    ] == type_stub(Order).split("\n")


def test_enums_and_typed_dicts() -> None:
    """Members with values; keys with types."""
    assert "Size(Enum): S='s', M='m'" == type_stub(Size)
    assert 'Row = {"id": int, "note"?: str}' == type_stub(Row)


def test_a_class_shows_constructor_properties_and_methods() -> None:
    """Signatures of public methods, with `await` where it is needed."""
    assert [
        "Light(name: str, brightness: int = 100)  # A smart light",
        "  brightness: int",
        "  is_on: bool  # Whether it shines",
        "  dim(level: int) -> None  # Set the brightness, 0 to 100",
        "  await blink(times: int = 3) -> None",
        "  broken() -> Light",
        "  watts(hours: float) -> float",
    ] == type_stub(Light, class_doc(Light)).split("\n")


def test_overridden_methods_are_shown_once() -> None:
    """As the class itself has them; inherited ones follow."""
    stub = type_stub(Lamp)
    assert 1 == stub.count("dim(")
    assert "dim(level: int, slowly: bool = False)" in stub
    assert "blink" in stub


def test_large_enums_are_cut() -> None:
    """Forty members, and how many there are."""
    large = Enum("Large", {f"M{i}": i for i in range(41)})
    exact = Enum("Exact", {f"M{i}": i for i in range(40)})
    assert type_stub(large).endswith("M39=39, ... (41 in all)")
    assert type_stub(exact).endswith("M39=39")


def test_generated_docstrings_say_nothing() -> None:
    """Dataclasses write their signature into an empty docstring."""
    made = dataclasses.make_dataclass("Made", ["a"])
    assert ("", "One line of an order", "") == (class_doc(made), class_doc(Item), class_doc(Lamp))


def test_records_are_found_through_each_other() -> None:
    """In the order in which they are found; classes that any model knows are left out; cycles end."""
    assert [Order, Item, Size, Row, Point] == list(records_in(uses))
    assert [Node] == list(records_in(Node))
    assert [Size] == list(records_in(Shelf))


@pytest.mark.parametrize(("expected", "cls"), [(True, Item), (False, date), (False, BaseModel), (False, int)])
def test_own_classes_are_those_of_the_program(expected: bool, cls: type) -> None:
    """Neither the standard library nor installed packages."""
    assert expected == is_own(cls)
