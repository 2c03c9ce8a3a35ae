"""Internal state of libraries' modules: any step that calls into one may have changed it."""

from __future__ import annotations

import calendar

import pytest
from tests.support.tracking.steps import Steps

from cenote_worker.execution.trace import LIBRARIES, module, name
from cenote_worker.jail.tracking.process_state.library_state import (
    LARGE,
    different,
    insides,
    is_plain,
    items_of,
)

pytestmark = pytest.mark.usefixtures("alone")


def test_what_a_function_sets_is_an_attribute_of_its_module(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calendar.c, "_firstweekday", 0)
    steps.good("import calendar")
    trace = steps.good("calendar.setfirstweekday(6)")
    assert {module("calendar"), LIBRARIES} <= trace.writes.keys()


def test_a_function_that_sets_nothing_changes_nothing(steps: Steps) -> None:
    steps.good("import calendar")
    trace = steps.good("calendar.monthrange(2020, 1)")
    assert set() == {module("calendar"), LIBRARIES} & trace.writes.keys()


def test_what_is_handed_to_a_library_is_met_by_every_later_step(steps: Steps) -> None:
    """Its registries cannot be inspected, so any code of the step may be in them."""
    steps.good("import codecs\nk = 1\ncodecs.register_error('cenote.test', lambda e: (str(k), e.end))")
    trace = steps.good("b'x'.decode()")
    assert name("k") in trace.reads


def test_modules_that_come_late_are_no_change() -> None:
    """A library imports some of its parts on first use."""
    before = insides(calendar)
    assert [] == list(different(before, {**before, "late": [pytest]}))
    assert ["late"] == list(different(before, {**before, "late": [1]}))


def test_tables_are_compared_up_to_a_limit() -> None:
    assert 2 * LARGE == len(items_of(dict.fromkeys(range(LARGE))))
    assert [] == items_of(dict.fromkeys(range(LARGE + 1)))


@pytest.mark.parametrize(("value", "plain"), [({}, True), ([1, "a"], True), (iter([]), False), ([{}], True)])
def test_what_can_be_seen_whole(value: object, plain: bool) -> None:
    assert plain == is_plain(value)
