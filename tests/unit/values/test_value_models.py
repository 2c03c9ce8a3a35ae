"""Pydantic models are validated by the reader's own class before any code uses them."""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel

from cenote_security.errors import MalformedValueError
from cenote_security.values import encode
from cenote_security.values.decoder import class_table, load

T = TypeVar("T")


class Item(BaseModel):
    name: str
    price: float = 0.0


class Basket(BaseModel):
    items: list[Item] = []
    owner: Item | None = None
    _secret: int = PrivateAttr(default=7)


class Aliased(BaseModel):
    inner_name: int = Field(alias="innerName")


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: int


class Names(RootModel[list[str]]):
    pass


class Holder(BaseModel, Generic[T]):
    content: T


class Deep(BaseModel):
    content: pydantic.JsonValue


ALL = [Item, Basket, Aliased, Loose, Frozen, Names, Holder[int], Deep]


def roundtrip(value: Any) -> Any:
    encoded = encode(value)
    return load(encoded.header, encoded.region(), classes=ALL)


@pytest.mark.parametrize(
    "value",
    [
        Item(name="a"), Basket(items=[Item(name="a", price=1.5)], owner=Item(name="b")), Aliased(innerName=3),
        Loose(a=1, b=[2]), Frozen(a=1), Names(["a", "b"]), Holder[int](content=3), Deep(content={"a": [1, None]}),
    ],
    ids=repr,
)  # fmt: skip
def test_a_model_comes_back_equal(value: BaseModel) -> None:
    """Equality of models covers class, fields, extra fields, private attributes."""
    found = roundtrip(value)
    assert (value, value.model_fields_set) == (found, found.model_fields_set)


def test_private_attributes_are_kept() -> None:
    """They are part of the state, though not of the schema."""
    basket = Basket()
    basket._secret = 9
    assert 9 == roundtrip(basket)._secret


def test_a_model_is_shared_as_before() -> None:
    """Nested models are already instances when the outer one is validated, and stay the same objects."""
    item = Item(name="a")
    found = roundtrip(Basket(items=[item, item], owner=item))
    assert found.items[0] is found.items[1] is found.owner


def model(cls: type, fields: dict[str, Any], extra: str = "[],[]", names: Any = None) -> bytes:
    (name,) = class_table([cls])
    names = names or [list(fields), [], [], []]
    return json.dumps(
        [1, [0], [["model", [name, names], list(fields.values()), *json.loads(f"[{extra}]")]]]
    ).encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (model(Item, {"name": 3}), "valid string"),
        (model(Item, {}), "Field required"),
        (model(Item, {"name": "a", "more": 1}), "fields of"),
        (model(Item, {}, "[1],[]", [[], ["more"], [], []]), "no extra"),
        (model(Basket, {}, "[],[1]", [[], [], ["_other"], []]), "not declared"),
        (model(Basket, {}, "[],[1]", [[], [], ["__class__"], []]), "not declared"),
    ],
    ids=["type", "missing", "unknown", "extra", "private", "special"],
)
def test_hostile_state_does_not_pass_validation(content: bytes, reason: str) -> None:
    """State that the class would refuse is refused."""
    with pytest.raises(MalformedValueError, match=reason):
        load(content, classes=ALL)


def test_a_model_that_refers_to_itself_is_refused() -> None:
    """Validation needs complete fields, so there is no order of building."""
    holder = Deep(content=None)
    holder.content = [holder]  # type: ignore[list-item]
    encoded = encode(holder)
    with pytest.raises(MalformedValueError, match="refers to itself"):
        load(encoded.header, classes=ALL)


def test_shared_content_is_not_walked_for_ever() -> None:
    """Forty lists, each holding the previous one twice, are 2**40 values to a validator."""
    value: list[Any] = []
    for _ in range(40):
        value = [value, value]
    encoded = encode(Deep.model_construct(content=value))
    with pytest.raises(MalformedValueError, match="too many steps"):
        load(encoded.header, classes=ALL)
