"""The decoder's order of work: children before parents, keys before dicts, cycles at the end."""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass
from typing import Any

import pytest

from cenote_security.errors import MalformedValueError
from cenote_security.garbage_collection import collector_off
from cenote_security.values import Limits, decode, decoder, encode
from cenote_security.values.decoder import class_table, load
from cenote_security.values.node import Json


@dataclass(frozen=True)
class Key:
    name: Any


(KEY,) = class_table([Key])


def table(*nodes: Any) -> bytes:
    return json.dumps([1, [0], list(nodes)]).encode()


def test_the_order_of_the_table_does_not_matter() -> None:
    """Parents may precede their children; honest encoders do so only in cycles."""
    header = table(["tuple", None, [[1], [2]]], ["tuple", None, [[2]]], ["frozenset", None, [1]])
    assert ((frozenset({1}),), frozenset({1})) == decode(header)


def test_a_dict_waits_for_the_state_of_its_keys() -> None:
    """A key that follows its dict is complete before it is hashed."""
    header = table(["dict", None, [[1]], ["found"]], ["instance", [KEY, ["name"]], ["a"]])
    found: Any = load(header, classes=[Key])
    assert "found" == found[Key("a")]


def test_nodes_that_nothing_refers_to_are_checked_too() -> None:
    """No part of the table is unchecked."""
    with pytest.raises(MalformedValueError):
        decode(table(["list", None, []], ["int", "no"]))


def test_a_scalar_needs_no_table() -> None:
    """The root may be inline."""
    assert 1.5 == decode(b"[1,1.5,[]]")


def test_nesting_of_keys_has_a_limit() -> None:
    """At the limit a key passes, one level deeper it is refused."""
    limits = Limits(depth=5)
    key: Any = 0
    for _ in range(5):
        key = (key,)
    assert {key: 1} == decode(encode({key: 1}).header, limits=limits)
    with pytest.raises(MalformedValueError, match="5 deep"):
        decode(encode({(key,): 1}).header, limits=limits)


def test_work_has_a_limit() -> None:
    """Exactly the allowed number of steps passes."""
    header = encode({("a", "b"): 1}).header  # one key, its node, two children
    assert {("a", "b"): 1} == decode(header, limits=Limits(walk=4))
    with pytest.raises(MalformedValueError, match="steps"):
        decode(header, limits=Limits(walk=3))


@pytest.mark.slow
def test_many_honest_keys_are_fine() -> None:
    """A hundred thousand different tuples as keys have a proportional cost."""
    value = {(number, str(number)): number for number in range(20_000)}
    assert value == decode(encode(value).header, encode(value).region())


def test_an_error_of_a_library_is_bounded() -> None:
    """Hostile content does not return as an endless message."""
    with pytest.raises(MalformedValueError) as caught:
        decode(table(["zone", "A/" + "B" * 31]))
    assert len(str(caught.value)) < 500


def test_an_error_of_the_reader_s_class_is_contained() -> None:
    """Its `__hash__` may fail on hostile state."""
    header = table(["dict", None, [[2]], [1]], ["list", None, []], ["instance", [KEY, ["name"]], [[1]]])
    with pytest.raises(MalformedValueError, match="unhashable"):
        load(header, classes=[Key])


@pytest.mark.slow
def test_the_collector_rests_while_much_is_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would scan everything repeatedly, and delay all threads. It is on again when the last is done."""
    seen: list[bool] = []
    parse = decoder._parse

    def watched(header: bytes, limits: Limits) -> Json:
        seen.append(gc.isenabled())
        return parse(header, limits)

    monkeypatch.setattr(decoder, "_parse", watched)
    many, few = encode([[number] for number in range(60_000)]), encode([1])
    value = decode(many.header, many.region())
    assert gc.get_count()[0] < 50_000, len(value)  # it has passed on the existing ones
    decode(few.header, few.region())
    with pytest.raises(MalformedValueError):
        decode(b"[" * len(many.header))
    assert ([False, True, False], True) == (seen, gc.isenabled())
    with collector_off(stays=False):
        decode(many.header, many.region())
        assert not gc.isenabled()
    gc.disable()
    try:
        decode(many.header, many.region())
        assert not gc.isenabled()
    finally:
        gc.enable()
