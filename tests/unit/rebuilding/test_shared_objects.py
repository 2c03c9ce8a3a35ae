"""Which names share objects: found by a slow walk, and as fast for a jail that reports thousands."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from cenote_worker.execution.trace import ABSENT, BLIND, Location, StepTrace, Version, name
from cenote_worker.history.step import StepRecord
from cenote_worker.record.rebuild_plan import SharedObjects

NAMES = tuple(map(name, "abcde"))
some = st.sets(st.sampled_from(NAMES), max_size=4)
steps = st.tuples(some, some, some, st.lists(some, max_size=2), st.booleans())
"""A step's writes, which of them are deleted or mutated, which share objects then, whether more may share."""

Groups = dict[Location, frozenset[Location]]


def record(
    number: int,
    writes: set[Location],
    deletes: set[Location],
    mutates: set[Location],
    shares: Sequence[set[Location]],
    blind: bool,
) -> StepRecord:
    versions = {each: ABSENT if each in deletes else Version("1") for each in writes}
    trace = StepTrace(
        writes=MappingProxyType(versions),
        mutated=frozenset(mutates & writes),
        groups=tuple(map(frozenset, shares)),
        opaque=("it called exec",) if blind else (),
    )
    return StepRecord(number=number, code="", trace=trace)


def followed(groups: Groups, found: StepRecord) -> Groups:
    """One more step, each group built again."""
    assert found.trace is not None
    trace = found.trace
    for each, version in trace.writes.items():
        if each in groups and (each not in trace.mutated or version == ABSENT):
            groups = {other: group - {each} for other, group in groups.items()} | {each: frozenset((each,))}
    new = {each: frozenset((each,)) for each in trace.writes.keys() - groups.keys()}
    groups = {each: group for each, group in (groups | new).items() if each not in trace.deleted}
    for members in (*trace.groups, *([frozenset(groups)] if found.unknown else [])):
        joined = frozenset[Location]().union(*(groups[each] for each in members if each in groups))
        groups = groups | dict.fromkeys(joined, joined)
    return groups


@given(st.lists(steps, max_size=12))
def test_names_are_together_as_the_steps_have_left_them(program: list[tuple]) -> None:
    line = [record(number, *step) for number, step in enumerate(program, 1)]
    expected: Groups = {NAMES[0]: frozenset((NAMES[0],))}
    for each in line:
        expected = followed(expected, each)
    sharing = SharedObjects(line, ("a",))
    assert {each: expected.get(each, frozenset((each,))) for each in NAMES} == {
        each: sharing.group(each) for each in NAMES
    }


def test_thousands_of_names_that_leave_what_they_share_cost_a_step_each() -> None:
    """A jail may report this: each used to be removed from a set rebuilt for all others, which took minutes."""
    names = {name(f"n{index}") for index in range(5_000)}
    line = [record(1, names, set(), set(), [names], True)]
    line += [
        record(number, names, set(), set(), [names] if number % 2 else [], number % 3 == 0)
        for number in range(2, 40)
    ]
    assert names == SharedObjects(line, ()).group(name("n7"))


def test_what_does_not_tell_what_it_holds_may_hold_all_that_its_step_had() -> None:
    a, b, c, d, _ = NAMES
    trace = StepTrace(
        reads=MappingProxyType({a: Version("1")}),
        writes=MappingProxyType({b: Version("?"), c: Version("1")}),
        unportable=MappingProxyType({b: f"a nditer {BLIND}"}),
    )
    found = SharedObjects([StepRecord(number=1, code="", trace=trace)], "ad")
    assert (frozenset((a, b, c)), {d}) == (found.group(b), found.group(d))
