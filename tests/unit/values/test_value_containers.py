"""Containers keep their types, their sharing and their cycles."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_security.errors import UnsafeValueError
from cenote_security.values import decode, encode


def roundtrip(value: Any) -> Any:
    encoded = encode(value)
    return decode(encoded.header, encoded.region())


VALUES = [
    [],
    [1, [2.5, (None, True)], "x"],
    (),
    {},
    {"a": {1: {2}}, (1, "b"): [], None: 0.0},
    set(),
    {1, "a", frozenset({2, (3,)})},
    OrderedDict([("z", 1), ("a", 2)]),
    Counter("abracadabra"),
    deque([1, 2, 3], maxlen=5),
    deque([1]),
    SimpleNamespace(a=1, b=[2]),
    list(range(1000)),
    [float(i) for i in range(1000)],
    [2**70 + i for i in range(1000)],
    [True, False] * 100,
    ["text"] * 100,
    [1, "a", None, 2.5] * 100,
    {i: str(i) for i in range(1000)},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__} {value!r:.30}")
def test_a_container_comes_back_equal(value: Any) -> None:
    """Equal, and of exactly the same type."""
    found = roundtrip(value)
    assert (type(value), value) == (type(found), found)


def test_a_deque_keeps_its_bound() -> None:
    """`maxlen` is part of a deque, though not of its equality."""
    assert 5 == roundtrip(deque([1], maxlen=5)).maxlen


def test_a_defaultdict_keeps_a_builtin_factory() -> None:
    """The factory is called again for the next missing key."""
    found = roundtrip(defaultdict(list, a=[1]))
    found["b"].append(2)
    assert {"a": [1], "b": [2]} == found


def test_a_defaultdict_with_a_function_is_refused() -> None:
    """A function from a jail would run outside of it at the next missing key."""
    with pytest.raises(UnsafeValueError, match="default_factory"):
        encode(defaultdict(lambda: 0))


def test_the_order_of_a_dict_is_kept() -> None:
    """Keys come back in the order of insertion."""
    assert ["z", "a", "m"] == list(roundtrip({"z": 1, "a": 2, "m": 3}))


def test_equal_scalars_of_different_types_stay_different() -> None:
    """1, 1.0 and True are equal but not the same value."""
    assert [int, float, bool] == [type(item) for item in roundtrip([1, 1.0, True])]


def test_shared_objects_stay_shared() -> None:
    """One object that is reached twice is one object afterwards."""
    shared = [1]
    found = roundtrip({"a": shared, "b": (shared, shared)})
    assert found["a"] is found["b"][0] is found["b"][1]


def test_equal_but_distinct_objects_stay_distinct() -> None:
    """Equality does not merge objects."""
    found = roundtrip([[1], [1]])
    assert found[0] is not found[1]


def test_an_immutable_that_is_reached_early_and_late_is_built_once() -> None:
    """A tuple that waits on the stack is written before a tuple that holds it."""
    inner = ("inner",)
    found = roundtrip([inner, (inner,), ((inner,),)])
    assert found[0] is found[1][0] is found[2][0][0]


def test_a_list_in_itself() -> None:
    """The smallest cycle."""
    value: list[Any] = []
    value.append(value)
    found = roundtrip(value)
    assert found[0] is found


def test_a_cycle_through_tuples() -> None:
    """A tuple can only be built after the tuples in it, in any order of the table."""
    middle: list[Any] = []
    outer = (middle,)
    middle.append((outer,))
    found = roundtrip(outer)
    assert found[0][0][0] is found


def test_a_cycle_through_a_dict_and_its_key() -> None:
    """A key may hold nothing that refers back, a value may."""
    value: dict[Any, Any] = {}
    value["self"] = [value]
    found = roundtrip(value)
    assert found["self"][0] is found


@pytest.mark.slow
def test_nesting_has_no_limit() -> None:
    """Fifty thousand levels take memory, not stack."""
    value: list[Any] = []
    for _ in range(50_000):
        value = [value]
    found, depth = roundtrip(value), 0
    while found:
        found, depth = found[0], depth + 1
    assert 50_000 == depth


class Spot:
    """A mutable node of a random graph, before it is made into real containers."""

    def __init__(self, kind: str, scalars: list[Any], edges: list[int]) -> None:
        self.kind, self.scalars, self.edges = kind, scalars, edges


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
SPOTS = st.builds(
    Spot,
    st.sampled_from(["list", "dict", "tuple", "deque"]),
    st.lists(SCALARS, max_size=3),
    st.lists(st.integers(0, 7), max_size=4),
)


def build_graph(spots: list[Spot]) -> list[Any]:
    """Real objects. Tuples hold only earlier tuples, since Python could not build others either."""
    made: list[Any] = [{"list": list, "dict": dict, "deque": deque}.get(s.kind, tuple)() for s in spots]
    for number, spot in enumerate(spots):
        if spot.kind == "tuple":
            allowed = [e % len(spots) for e in spot.edges]
            made[number] = (
                *spot.scalars,
                *(made[e] for e in allowed if spots[e].kind != "tuple" or e < number),
            )
    for spot, container in zip(spots, made, strict=True):
        content = [*spot.scalars, *(made[e % len(spots)] for e in spot.edges)]
        if spot.kind == "dict":
            container.update(enumerate(content))
        elif spot.kind != "tuple":
            container.extend(content)
    return made


def same_shape(left: Any, right: Any) -> bool:
    """Equal content and the same identities on both sides, cycles included."""
    paired: dict[int, int] = {}
    waiting = [(left, right)]
    while waiting:
        one, other = waiting.pop()
        if type(one) is not type(other):
            return False
        if not isinstance(one, list | dict | tuple | deque):
            if one != other:
                return False
            continue
        if id(one) in paired:
            if one and paired[id(one)] != id(other):  # all empty tuples are one object
                return False
            continue
        paired[id(one)] = id(other)
        if len(one) != len(other):
            return False
        if isinstance(one, dict):
            waiting.extend(zip(one, other, strict=True))
            one, other = one.values(), other.values()
        waiting.extend(zip(one, other, strict=True))
    return len(set(paired.values())) == len(paired)


@settings(max_examples=150, deadline=None)
@given(st.lists(SPOTS, min_size=1, max_size=8))
def test_any_graph_of_containers_keeps_its_shape(spots: list[Spot]) -> None:
    """For any references: content, types and identities are preserved."""
    graph = build_graph(spots)
    found = roundtrip(graph)
    assert same_shape(graph, found)
