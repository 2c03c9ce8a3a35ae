"""An auditor compares a share of patched histories with full runs of them, and reports the differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from cenote.harness.applying.auditor import Audit, Auditor, InspectedState, Unlike, UnsoundError
from cenote_security.errors import UnavailableError, UnsafeValueError
from cenote_worker.history.step import StepRecord

ALWAYS = Auditor(share=1.0, chance=lambda: 0.999)
PRINTED = (StepRecord(number=3, stdout="1\n"), StepRecord(number=7, value="<A at 0x7f01>"))

SHOWN = StepRecord(number=1, stdout="1\n", outputs=({"text/html": "<b>1</b>"},))


@dataclass(kw_only=True)
class State:
    """values: None for a value that stays in its jail."""

    values: Mapping[str, object] = field(default_factory=dict)
    paths: Mapping[str, bytes] = field(default_factory=dict)
    records: Sequence[StepRecord] = PRINTED

    def described(self) -> Mapping[str, str]:
        return {name: type(value).__name__ for name, value in self.values.items()}

    def value(self, name: str) -> object:
        if self.values[name] is None:
            raise UnsafeValueError("A")
        return self.values[name]

    def files(self) -> Mapping[str, bytes]:
        return self.paths


@dataclass(kw_only=True)
class Patched(State):
    """runs: successive results of full runs. reason: see AuditSubject.obstacle."""

    runs: Sequence[State | Exception]
    reason: str = ""

    def obstacle(self) -> str:
        return self.reason

    @contextmanager
    def in_full(self) -> Iterator[InspectedState]:
        run, *self.runs = self.runs
        if isinstance(run, Exception):
            raise run
        yield run


def audited(patched: State, *runs: State | Exception) -> Audit:
    whole = Patched(values=patched.values, paths=patched.paths, records=patched.records, runs=runs)
    audit = ALWAYS.audit(whole)
    assert audit is not None
    return audit


def test_a_sound_history_passes() -> None:
    """A value that stays in its jail is compared by its description, and the audit says so."""
    full = (StepRecord(number=1, stdout="1\n"), StepRecord(number=2, value="<A at 0x5502>"))
    one, other = State(values={"a": [1.5], "f": None}), State(values={"a": [1.5], "f": None}, records=full)
    assert Audit(outcome="same", described=("f",)) == audited(one, other)


def test_names_in_another_order_are_an_alarm() -> None:
    """Programs can observe the order."""
    one, other = State(values={"a": 1, "b": 2, "c": 3}), State(values={"b": 2, "a": 1, "c": 3})
    audit = audited(one, other, other)
    assert ("different", ("a", "b")) == (audit.outcome, audit.unlike.names)


@pytest.mark.parametrize(("chance", "checked"), [(0.499, True), (0.5, False)])
def test_only_a_share_is_checked(chance: float, checked: bool) -> None:
    """The others cost nothing: no full run is made."""
    auditor = Auditor(share=0.5, chance=lambda: chance)
    patched = Patched(runs=(State(),))
    assert (checked, 0 if checked else 1) == (auditor.audit(patched) is not None, len(patched.runs))


@pytest.mark.parametrize(
    ("full", "unlike"),
    [
        (State(values={"a": [1, 2]}), Unlike(names=("a",))),
        (State(values={"a": [True]}), Unlike(names=("a",))),
        (State(values={"a": None}), Unlike(names=("a",))),
        (State(values={"a": [1], "b": 1}), Unlike(names=("b",))),
        (State(), Unlike(names=("a",))),
        (State(values={"a": [1]}, paths={"p": b"1"}), Unlike(files=("p",))),
        (State(values={"a": [1]}, records=(StepRecord(number=1), PRINTED[1])), Unlike(steps=(3,))),
        (State(values={"a": [1]}, records=PRINTED[:1]), Unlike(steps=(7,))),
        (State(values={"a": [1]}, records=(SHOWN, PRINTED[1])), Unlike(steps=(3,))),
    ],
)
def test_what_each_full_run_gives_otherwise_is_different(full: State, unlike: Unlike) -> None:
    """By name, path and step of the patched history; a run that ends early differs in the step that it lacks."""
    audit = audited(State(values={"a": [1]}), full, full)
    assert ("different", unlike) == (audit.outcome, audit.unlike)


def test_what_full_runs_disagree_about_is_no_alarm() -> None:
    """Such a difference is random. One on which they agree is an alarm all the same."""
    patched = State(values={"t": 1, "a": 1})
    runs = State(values={"t": 2, "a": 1}), State(values={"t": 3, "a": 1})
    assert ("unsteady", ("t",)) == (audited(patched, *runs).outcome, audited(patched, *runs).unlike.names)
    runs = State(values=patched.values, records=PRINTED[:1]), State(values=patched.values, records=())
    assert "unsteady" == audited(patched, *runs).outcome
    runs = State(values={"t": 2, "a": 5}), State(values={"t": 3, "a": 5})
    assert ("different", ("a",)) == (audited(patched, *runs).outcome, audited(patched, *runs).unlike.names)


def test_a_history_that_cannot_be_run_in_full_is_said_to_be_unchecked() -> None:
    """Known before, or found out in the middle: it is never ignored silently."""
    known = ALWAYS.audit(Patched(runs=(), reason="something was put in"))
    assert Audit(outcome="not checked", reason="something was put in") == known
    lost = audited(State(), UnavailableError("there is no memory"))
    assert ("not checked", True) == (lost.outcome, "there is no memory" in lost.reason)


def test_the_alarm_names_what_differs_and_what_to_do() -> None:
    """The patch with its steps, too: a bug report needs them."""
    audit = audited(State(values={"a": 1}), State(values={"a": 2}), State(values={"a": 2}))
    text = str(UnsoundError(audit, "p1", (2, 4), ()))
    for part in ("variables a", "patch p1", "steps 2, 4;", "not run again: none", "state.revert('p1')"):
        assert part in text
