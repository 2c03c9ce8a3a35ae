"""Whether one name shows memory that another one has, by address ranges."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cenote_worker.execution.trace import Version
from cenote_worker.jail.tracking.descriptions.graph import Stretch
from cenote_worker.jail.tracking.fingerprint import Fingerprint, merged

STRETCHES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 8)).map(lambda pair: (pair[0], sum(pair))), max_size=8
)


def overlap(ones: list[Stretch], others: list[Stretch]) -> bool:
    return any(first < end and start < last for first, last in ones for start, end in others)


@given(STRETCHES, STRETCHES)
def test_any_common_byte_counts(shown: list[Stretch], owned: list[Stretch]) -> None:
    one = Fingerprint(identity=1, version=Version("1"), shown=merged(shown))
    other = Fingerprint(identity=2, version=Version("2"), owned=merged(owned))
    assert overlap(shown, owned) == one.shows(other)


@given(STRETCHES)
def test_the_same_bytes_are_left_in_order(stretches: list[Stretch]) -> None:
    found = merged(stretches)
    assert {byte for each in stretches for byte in range(*each)} == {
        byte for each in found for byte in range(*each)
    }
    assert all(end < start for (_, end), (start, _) in pairwise(found))
