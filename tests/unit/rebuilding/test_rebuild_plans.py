"""Plans as values in, values out: which steps give a variable again, and when none do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_proto.v1 import checkpoint_pb2
from cenote_worker.checkpoints.state import Rebuild, State, parse_state
from cenote_worker.execution.results import ErrorInfo
from cenote_worker.execution.trace import (
    ABSENT,
    Location,
    StepTrace,
    Version,
    file,
    hidden,
    key_of,
    kind_of,
    name,
)
from cenote_worker.history.step import HostCallRecord, StepRecord
from cenote_worker.record import rebuild_plan as walk_module
from cenote_worker.record.lineage import Lineage
from cenote_worker.record.rebuild_plan import rebuild_of
from cenote_worker.runtime.state.rebuild import LineageWriter, read_lineage

LIMIT = 1 << 20
ENVIRON, RANDOM = hidden("environ"), hidden("random")


def state(kept: str = "", unkept: str = "", files: tuple[str, ...] = (), hosts: str = "") -> State:
    """A state of variables with names of one letter."""
    message = checkpoint_pb2.State(names=[*kept, *unkept, *hosts], hosts=hosts)
    part = checkpoint_pb2.StoredPart(size=0)
    for each in kept:
        message.groups.add(names=[each], parts=[part])
    for path in files:
        message.files.add(path=path.encode(), content=part)
    for each in unkept:
        message.unkept.add(name=each, reason="it is a generator", step=1)
    return parse_state(message, LIMIT)


def step(
    number: int,
    reads: Mapping[Location, str] | None = None,
    writes: Mapping[Location, str] | None = None,
    *,
    mutates: str = "",
    shares: str = "",
    opaque: str = "",
    unrepeatable: str = "",
    **more: object,
) -> StepRecord:
    trace = StepTrace(
        reads=MappingProxyType({each: Version(seen) for each, seen in (reads or {}).items()}),
        writes=MappingProxyType({each: Version(seen) for each, seen in (writes or {}).items()}),
        mutated=frozenset(map(name, mutates)),
        groups=(frozenset(map(name, shares)),) if shares else (),
        opaque=(opaque,) if opaque else (),
        unrepeatable=(unrepeatable,) if unrepeatable else (),
    )
    record = StepRecord(number=number, parent=number - 1, code=f"step {number}", trace=trace)
    return replace(record, **more)  # type: ignore[arg-type]


def planned(
    found: State, *steps: StepRecord, begun: tuple[str, ...] = (), out: bool = False, injected: str = ""
) -> Rebuild:
    return rebuild_of(found, Lineage(begun, steps), reaches_out=out, injected=injected)


A, B, G, H = map(name, "abgh")
RAISED = ErrorInfo(type="NameError", message="", reason="exception")


def test_what_was_put_in_at_first_and_is_kept_is_there_for_the_steps() -> None:
    """Then no other injected value is given in its stored form: they may share objects."""
    line = (
        step(1, {A: "a1", B: "b1"}, {G: "?1"}),
        step(2, {A: "a1"}, {A: "a2"}, mutates="a"),
    )
    refused = planned(state("ab", "g"), *line, begun=("a", "b"))
    assert "`a` had at the start is kept no more" in refused.refused["g"]
    found = planned(state("ab", "g"), *line, begun=("a", "b"), injected="ab")
    assert (("g",), (1,), frozenset()) == (found.names, found.steps, found.given)
    unchanged = planned(state("ab", "g"), line[0], begun=("a", "b"), injected="ab")
    assert {A, B} == unchanged.given


def test_a_failed_step_has_left_the_process_in_a_state_too() -> None:
    """Later steps have found its effects, not the state before."""
    line = (
        step(1, {RANDOM: "?0"}, {RANDOM: "r1"}, code="random.seed(1)"),
        step(
            2,
            {RANDOM: "r1"},
            {RANDOM: "r2"},
            status="failed",
            error=ErrorInfo(type="NameError", message="", reason="exception"),
        ),
        step(3, {RANDOM: "r2"}, {RANDOM: "r3", G: "?1"}),
    )
    assert (1, 2, 3) == planned(state("", "g"), *line).steps


def test_the_steps_that_made_and_advanced_it_are_run() -> None:
    """Its inputs are given in their stored form, if no step has changed them since."""
    line = (
        step(1, {}, {A: "a1"}, unrepeatable="it asks for the time"),
        step(2, {A: "a1"}, {G: "?1"}),
        step(3, {}, {B: "b1"}),
        step(4, {G: "?1"}, {G: "?2"}, mutates="g"),
    )
    found = planned(state("ab", "g"), *line)
    assert (("g",), (2, 4), {A}) == (found.names, found.steps, found.given)


def test_what_was_changed_since_is_made_again_as_it_was() -> None:
    """A later value would differ."""
    line = (step(1, {}, {A: "a1"}), step(2, {A: "a1"}, {G: "?1"}), step(3, {}, {A: "a2"}))
    found = planned(state("a", "g"), *line)
    assert ((1, 2), set()) == (found.steps, found.given)


def test_a_change_in_place_does_not_stand_for_what_was_there_before() -> None:
    """A step may change an object through another that shares it, without reading it: earlier ones made it."""
    line = (
        step(1, {}, {A: "a1", G: "?1"}, shares="ag"),
        step(2, {G: "?1"}, {G: "?2"}, mutates="g", shares="ag"),
        step(3, {A: "a1"}, {A: "a2", G: "?3"}, mutates="ag", shares="ag"),
    )
    found = planned(state("a", "g"), *line)
    assert (("a", "g"), (1, 2, 3)) == (found.names, found.steps)


def test_what_a_step_writes_beside_is_not_given_to_a_later_one() -> None:
    """Step 1 would restore an older value between the stored one and its reader; so step 2 is run as well."""
    line = (
        step(1, {}, {H: "?1", A: "a1"}),
        step(2, {}, {A: "a2"}),
        step(3, {A: "a2", H: "?1"}, {G: "?2"}),
    )
    found = planned(state("a", "gh"), *line)
    assert ((1, 2, 3), set()) == (found.steps, found.given)


def test_what_was_not_there_at_first_is_not_given_to_who_found_nothing() -> None:
    """One step found it absent, a later one found its stored value: it is made in between."""
    line = (step(1, {A: ""}, {G: "?1"}), step(2, {}, {A: "a1"}), step(3, {A: "a1", G: "?1"}, {G: "?2"}))
    found = planned(state("a", "g"), *line)
    assert ((1, 2, 3), set()) == (found.steps, found.given)


def test_behind_what_cannot_be_seen_everything_is_made_again() -> None:
    """An object that may refer to anything may share any other: all are made by all of the steps."""
    line = (
        step(1, {}, {A: "a1"}),
        step(2, {}, {G: "?1"}, opaque="g leads further"),
        step(3, {}, {B: "b1"}),
    )
    found = planned(state("ab", "g"), *line)
    assert (("a", "g"), (1, 2)) == (found.names, found.steps)


def test_one_that_cannot_be_had_does_not_spoil_another() -> None:
    """Each is named with its own reason."""
    line = (step(1, {}, {G: "?1"}, unrepeatable="it asks for the time"), step(2, {}, {H: "?2"}))
    found = planned(state("", "gh"), *line)
    assert (("h",), (2,), ["g"]) == (found.names, found.steps, list(found.refused))
    assert "step 1 may give something else each time" in found.refused["g"]


STOPPED = ErrorInfo(type="MemoryError", message="", reason="memory")
CALL = HostCallRecord(target="f", digest="d", reply=b"")


@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        (step(1, {}, {G: "?1"}, author="bob"), "by bob"),
        (step(1, {}, {G: "?1"}, kind="injection", names=("g",)), "that step 1 put in is kept no more"),
        (step(1, {}, {G: "?1"}, kind="unrecorded"), "nothing is recorded of what was done until step 1"),
        (
            step(1, {}, {G: "?1"}, host_calls=(replace(CALL, reply=None),)),
            "answer of f to step 1 was not kept",
        ),
        (step(1, {}, {G: "?1"}, host_calls=(replace(CALL, digest=""),)), "not all is recorded"),
        (step(1, {}, {G: "?1"}, dropped_calls=1), "not all is recorded"),
        (step(1, {}, {G: "?1", file("/data/x"): "v"}), "writes /data/x"),
        (step(1, {RANDOM: "r"}, {G: "?1"}, code="random.random()"), "no step has seeded"),
        (step(1, {A: "a0"}, {G: "?1"}), "`a` had at the start"),
        (step(1, {file("f"): "v"}, {G: "?1"}), "file f as it was at the start"),
        (
            step(1, {}, {G: "?1"}, status="failed", error=STOPPED),
            "was stopped",
        ),
    ],
)
def test_what_would_not_be_faithful_is_refused(obstacle: StepRecord, reason: str) -> None:
    """With the reason; nothing is run then."""
    later = step(2, {}, {A: "a2", file("f"): "w"})
    found = planned(state("a", "g", files=("f",)), obstacle, later)
    assert () == found.steps
    assert reason in found.refused["g"]


def test_a_step_that_may_have_reached_out_is_not_repeated() -> None:
    """Where the runtime has a network, or writes to the host: unless all effects of the step are known."""
    seen, unseen = step(1, {}, {G: "?1"}), step(1, {}, {G: "?1"}, opaque="it leads further")
    assert (1,) == planned(state("", "g"), seen, out=True).steps
    assert (1,) == planned(state("", "g"), unseen).steps
    assert "something outside" in planned(state("", "g"), unseen, out=True).refused["g"]


def test_what_nobody_is_known_to_have_made_is_refused() -> None:
    """Such as an injected value, or an untraced one of another author."""
    assert "no step is known" in planned(state("a", "g"), step(1, {}, {A: "a1"})).refused["g"]


def test_a_state_that_changed_between_steps_is_noticed() -> None:
    """As in a branch, which draws other random numbers than its source."""
    line = (step(1, {}, {RANDOM: "r1"}, code="random.seed(1)"), step(2, {RANDOM: "r2"}, {G: "?1"}))
    assert "changed between two steps" in planned(state("", "g"), *line).refused["g"]


def test_who_could_have_drawn_and_did_not_needs_no_seed() -> None:
    """It has imported the library, and left its state unchanged."""
    assert (1,) == planned(state("", "g"), step(1, {RANDOM: "r"}, {G: "?1", RANDOM: "r"})).steps


def test_host_functions_are_given_by_the_client() -> None:
    """They exist from the start, whenever they were put in."""
    line = (step(1, {}, {A: "?step 1"}, kind="injection", names=("a",)), step(2, {A: "?step 1"}, {G: "?1"}))
    assert (2,) == planned(state("", "g", hosts="a"), *line).steps
    restored = (StepRecord(number=1, kind="unrecorded"), step(2, {A: "a1"}, {G: "?1"}))
    found = planned(state("", "g", hosts="a"), *restored)
    assert ((2,), set()) == (found.steps, found.given)


def test_a_line_is_read_as_it_was_written() -> None:
    """Without its outputs; and a line that begins with a gap gets its initial values from another."""
    first, second = step(1, {A: "a"}, {G: "?1"}, host_calls=(CALL,)), step(2, {}, {B: "b"})
    line = Lineage(("a",), (replace(first, stdout="long"), second))
    assert Lineage(("a",), (first, second)) == read_lineage(LineageWriter().write(line))
    gap = StepRecord(number=1, kind="unrecorded")
    assert line == Lineage((), (gap, second)).behind(line)
    assert line == Lineage((), line.steps).behind(line)
    assert Lineage((), (second,)) == Lineage((), (second,)).behind(Lineage((), (step(7),)))


# -- for any line: the steps give the former values ---------------------------------------------------------

PLACES = (A, B, name("c"), G, file("f"), ENVIRON)


@dataclass(frozen=True)
class Does:
    """A step of a toy machine. Bound values depend on its reads, changed ones also on their former values."""

    reads: frozenset[Location]
    binds: frozenset[Location]
    changes: frozenset[Location]
    plain: bool
    unknown: bool

    def run(self, number: int, world: dict[Location, str]) -> StepRecord:
        before = {each: world.get(each, "") for each in PLACES}
        read = before if self.unknown else {each: before[each] for each in self.reads}
        known = "" if self.plain else f"{number}{sorted(read.items())}"
        for each in self.binds:
            world[each] = _short(f"{each}{known}")
        for each in self.changes - self.binds:
            world[each] = _short(f"{each}{number}{before[each]}{known}")
        written = {each: world[each] for each in PLACES if world.get(each, "") != before[each]}
        written |= {each: world[each] for each in self.binds}
        there = [each for each in self.changes - self.binds if before[each]]
        names = "".join(each[-1] for each in there if kind_of(each) == "name")
        reads = {each: before[each] for each in self.reads}
        reads |= {each: before[each] for each in self.changes - self.binds if kind_of(each) != "name"}
        opaque = "it leads further" if self.unknown else ""
        return step(number, reads, written, mutates=names, opaque=opaque)


def _short(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


SOME = st.frozensets(st.sampled_from(PLACES), max_size=2)
DOES = st.builds(
    Does,
    reads=SOME,
    binds=SOME,
    changes=SOME,
    plain=st.booleans(),
    unknown=st.sampled_from((False, False, False, False, True)),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(DOES, min_size=1, max_size=9))
def test_what_is_run_again_gives_what_was_there(deeds: list[Does]) -> None:
    """All planned values, from the given ones only; the other stored values do not matter."""
    world: dict[Location, str] = {G: "made"}
    line = [step(1, {}, {G: "made"})]
    line += [deed.run(number, world) for number, deed in enumerate(deeds, 2)]
    kept = "".join(each for each in "abc" if world.get(name(each)))
    found = planned(state(kept, "g", files=("f",) if world.get(file("f")) else ()), *line)
    assert not found.refused
    again = {each: world[each] for each in found.given if world.get(each, ABSENT) != ABSENT}
    for number in found.steps:
        if number == 1:
            again[G] = "made"
        else:
            deeds[number - 2].run(number, again)
    made = list(map(name, found.names))
    assert {each: world[each] for each in made} == {each: again.get(each, "") for each in made}


def test_what_is_there_by_itself_is_guessed_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt may refute one more guess, up to the number of steps; the result is the same without guesses."""
    walks: list[object] = []
    go = walk_module._Walk.go
    monkeypatch.setattr(walk_module._Walk, "go", lambda walk, roots: walks.append(walk) or go(walk, roots))
    names = [name(f"n{index}") for index in range(200)]
    message = checkpoint_pb2.State(names=["g", "h", *(key_of(each) for each in names)])
    for each in names:
        message.groups.add(names=[key_of(each)], parts=[checkpoint_pb2.StoredPart(size=0)])
    for each in "gh":
        message.unkept.add(name=each, reason="it is a generator", step=1)
    line = [step(1, {}, dict.fromkeys((H, *names), "1"))]
    for number, (taken, made) in enumerate(pairwise(names), 2):
        line.append(step(number, {taken: "1"}, {made: "1"}))
    line.append(step(len(line) + 1, {names[-1]: "1"}, {G: "?"}))
    found = planned(parse_state(message, LIMIT), *line)
    assert tuple(range(1, len(line) + 1)) == found.steps
    assert len(walks) <= 60
