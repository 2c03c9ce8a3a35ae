"""Classes that are sent into a jail because code there needs their names."""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar

import pydantic
import pytest

from cenote.runtime import Function, PythonRuntime, Type, Variable
from cenote.runtime.inject.injection import MAX_CLASSES, types_along

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"


class Part(pydantic.BaseModel):
    colour: Colour


class Whole(pydantic.BaseModel):
    parts: dict[str, list[Part]]
    inside: Whole | None = None


@dataclass
class Order:
    whole: Whole


class Row(TypedDict):
    order: Order


class Point(NamedTuple):
    colour: Colour


class Shop:
    """Its internals stay in the client when a live one is injected."""

    lock = threading.Lock()

    def find(self, row: Row) -> Shop: ...


class Plain:
    def paint(self, colour: Colour) -> Part: ...


def nested(rows: dict[str, list[Row | Point]], plain: Annotated[Plain, "a note"]) -> None: ...


def partly_unknown(order: Order, other: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def served(shop: Shop) -> Order | None: ...


def test_annotations_are_followed_to_the_end() -> None:
    """Containers, unions, Annotated, and the fields and methods of the classes found."""
    found = types_along([Function(nested)])
    assert {"Row", "Point", "Plain", "Order", "Colour", "Whole", "Part"} == set(found)
    assert found["Part"] is Part


def test_one_annotation_that_names_nothing_hides_no_other() -> None:
    """Each is evaluated separately."""
    assert {"Order", "Whole", "Part", "Colour"} == set(types_along([Function(partly_unknown)]))


def test_host_functions_and_objects_take_records_only() -> None:
    """Possible arguments or results; a service's own class is there by name, without its fields."""
    records = {"Order", "Whole", "Part", "Colour"}
    assert records | {"Shop"} == set(types_along([Function(served, host=True)]))
    assert records == set(types_along([Function(served, host=True, by_value=True)]))
    assert records | {"Row"} == set(types_along([Variable("shop", Shop(), host=True)]))


def test_values_in_containers() -> None:
    """Classes of elements count, some containers deep."""
    assert {"Point", "Colour"} == set(types_along([Variable("v", {"a": [(Point(Colour.RED),)]})]))
    assert {"Part", "Colour"} == set(types_along([Type(Plain)]))


def test_chains_of_classes_end() -> None:
    """A data model of any size costs a bounded amount."""
    last: type = type("Link0", (), {"__annotations__": {}})
    for number in range(1, MAX_CLASSES + 10):
        last = type(f"Link{number}", (), {"__annotations__": {"next": last}})
    assert MAX_CLASSES == len(types_along([Variable("v", last())]))


@pytest.mark.slow
def test_a_class_goes_along_twice(make_runtime: Any) -> None:
    """Two values of one class in two injections; then the class itself, which exists already."""
    with make_runtime() as runtime:
        runtime.inject(Variable("a", Part(colour=Colour.RED)))
        runtime.inject(Variable("b", [Part(colour=Colour.RED)]))
        runtime.update_variable("a", Point(Colour.RED))
        runtime.inject(Type(Part))
        result = runtime.execute("isinstance(b[0], Part) and a == Point(Colour.RED)")
        assert ("True", None) == (result.value, result.error)


def test_a_name_of_the_cells_own_stays(make_runtime: Any) -> None:
    """A class never replaces what a cell has made, nor prevents an injection."""
    with make_runtime() as runtime:
        runtime.execute("Part = 'mine'")
        runtime.inject(Variable("a", Part(colour=Colour.RED)))
        assert "'mine'" == runtime.execute("Part").value


def test_a_class_that_cannot_go_stops_nothing(make_runtime: Any) -> None:
    """It was not requested by name; the function itself still works."""

    @dataclass
    class Held:
        def use(self) -> object:
            return lock

    lock = threading.Lock()

    def count(held: Held | None = None) -> int:
        return 7

    # Annotations of this module are texts, which name no local class.
    count.__annotations__["held"] = Held | None
    with make_runtime() as runtime:
        runtime.inject(Function(count, host=True))
        assert "7" == runtime.execute("count()").value


class Box(Generic[T]):
    """A generic class of the user's own."""


def boxed(box: Box[Part], boxes: list[Box[int]]) -> Shop: ...


@pytest.mark.parametrize("host", [False, True])
def test_generic_and_plain_classes_of_a_signature_are_there(host: bool) -> None:
    """By the names in the signature; `list` and the like exist anyway."""
    found = types_along([Function(boxed, host=host)])
    assert {"Box", "Part", "Shop"} <= set(found)
    assert "list" not in found


def test_code_in_a_jail_can_name_what_a_host_function_gives() -> None:
    """A plain class arrives without its code, which stays in the client."""

    def make() -> Box[Part]:
        return Box()

    with PythonRuntime(functions=[Function(make, host=True)]) as runtime:
        assert "True" == runtime.execute("isinstance(make(), Box)").value


@pytest.mark.parametrize("head", ["", "from __future__ import annotations\n"])
def test_classes_that_exec_made_without_a_module_are_there(head: str) -> None:
    """They say that they are of `builtins`, which no jail has them in. What is of it goes by its name."""
    made: dict[str, Any] = {}
    source = (
        "class Parcel:\n    size = 7\ndef send(parcel: Parcel, other: int) -> Parcel:\n    return parcel\n"
    )
    exec(head + source, made)
    assert {"Parcel"} == set(types_along([Function(made["send"])]))
    with PythonRuntime(functions=[Function(made["send"])]) as runtime:
        assert "7" == runtime.execute("send(Parcel(), 1).size").value
