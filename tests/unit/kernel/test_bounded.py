"""Text of untrusted objects is bounded and printable, and equal to the ordinary repr if possible."""

import collections
import decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_proto.scalars import utf8_text
from cenote_worker.jail.rendering.bounded_text import bounded_repr, bounded_str, shorten, type_name

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.frozensets(st.integers(), max_size=3)
        | st.sets(st.integers(), max_size=3)
    ),
    max_leaves=15,
)


@given(plain)
@settings(max_examples=100)
def test_small_plain_values_have_their_ordinary_repr(value):
    assert utf8_text(repr(value)) == bounded_repr(value, 100_000)


@given(plain, st.integers(0, 200))
@settings(max_examples=100)
def test_the_limit_holds(value, limit):
    """Brackets and the count of omitted items are added."""
    assert limit + 400 > len(bounded_repr(value, limit))


@pytest.mark.parametrize("limit", [99, 100, 101])
def test_shorten_at_its_limit(limit):
    """Up to the limit a text is whole; one past it, its middle is cut."""
    shown = shorten("a" * 50 + "z" * 50, limit)
    assert (limit >= 100) == (shown == "a" * 50 + "z" * 50)
    assert shown.startswith("aaa")
    assert shown.endswith("zzz")


def test_long_containers_say_how_many_follow():
    assert "[0, 1, 2, 3, ... 999,996 more]" == bounded_repr(list(range(10**6)), 10)
    assert bounded_repr(dict.fromkeys(range(1000)), 30).endswith("more}")


def test_long_text_keeps_both_ends():
    text = bounded_repr("a" * 10**6 + "z", 20)
    assert text.startswith("'aaaaaaaaaa'")
    assert text.endswith("az'")
    assert 100 > len(text)


def test_cycles_end():
    items: list[object] = [1]
    items.append(items)
    keys: dict[str, object] = {"a": items}
    keys["b"] = keys
    assert "[1, [...]]" == bounded_repr(items)
    assert "{'a': [1, [...]], 'b': {...}}" == bounded_repr(keys)


def test_deep_nesting_ends():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert "[[[" == bounded_repr(deep)[:3]


def test_a_huge_int_is_not_written_out():
    assert "<int of 332193 bits>" == bounded_repr(10**100_000)


def test_lone_surrogates_are_written_out():
    """All text can be encoded as UTF-8."""
    assert "a\\ud800b" == utf8_text("a\ud800b")
    assert "\\udfff" == bounded_str("\udfff", 10)


def test_subclasses_of_containers_are_asked_themselves():
    assert "Counter({'a': 2})" == bounded_repr(collections.Counter("aa"))
    assert "Decimal('1.10')" == bounded_repr(decimal.Decimal("1.10"))


class Raises:
    def __repr__(self):
        raise ValueError("no")


class Exits:
    def __repr__(self):
        raise SystemExit(3)


class NotText:
    def __repr__(self):
        return 5


class Endless:
    def __repr__(self):
        return repr(self)


class Text(str):
    def __len__(self):
        raise ValueError

    def __getitem__(self, index):
        return self

    def __str__(self):
        return self


class LyingText:
    def __repr__(self):
        return Text("x" * 10**6)


class Meta(type):
    @property
    def __name__(cls):
        raise ValueError

    def __getattribute__(cls, name):
        raise ValueError


class Nameless(metaclass=Meta):
    def __repr__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Raises(), "<unprintable Raises: ValueError>"),
        (Exits(), "<unprintable Exits: SystemExit>"),
        (NotText(), "<unprintable NotText: TypeError>"),
        (Endless(), "<unprintable Endless: RecursionError>"),
        (Nameless(), "<unprintable Nameless: ValueError>"),
        ([1, Raises()], "[1, <unprintable Raises: ValueError>]"),
    ],
)
def test_hostile_reprs(value, text):
    assert text == bounded_repr(value)


def test_a_hostile_subclass_of_str_becomes_plain_and_bounded():
    text = bounded_repr(LyingText(), 100)
    assert str is type(text)
    assert 200 > len(text)


def test_names_of_classes_are_the_real_ones():
    assert "Nameless" == type_name(Nameless)
    assert 110 > len(type_name(type("x" * 1000, (), {})))
