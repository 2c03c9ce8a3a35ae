"""Traces as messages: the round trip is exact, and an invalid message ends in an error."""

from __future__ import annotations

import pytest

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import ProtocolViolation
from cenote_worker.execution import messages
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.execution.trace import ABSENT, ANYTHING, StepTrace, ValueKind, Version, file, hidden, name
from cenote_worker.wire.results import from_result, to_result

TRACE = StepTrace(
    reads={name("a"): Version("1"), hidden("random"): Version("r")},
    writes={
        name("b"): Version("2"),
        file("x/y.csv"): Version("3"),
        name("gone"): ABSENT,
        ANYTHING: Version("?"),
    },
    mutated=frozenset((name("b"),)),
    groups=(frozenset((name("a"), name("b"))), frozenset((name("c"),))),
    modules=("json",),
    opaque=("it uses `eval`",),
    unrepeatable=("it asks for the time",),
    unportable={name("b"): "a generator cannot be looked into"},
    kinds={name("b"): ValueKind(type="pandas.DataFrame", shape=(3, 2)), name("c"): ValueKind(type="int")},
)


def message(**fields: object) -> jail_pb2.StepTrace:
    return jail_pb2.StepTrace(**fields)  # type: ignore[arg-type]


def seen(count: int) -> list[jail_pb2.Seen]:
    return [jail_pb2.Seen(location=f"name:v{number}", version="1") for number in range(count)]


def test_what_is_said_comes_back() -> None:
    said = jail_pb2.StepTrace()
    messages.fill_trace(said, TRACE)
    assert messages.read_trace(jail_pb2.StepTrace.FromString(said.SerializeToString())) == TRACE


def test_a_step_says_of_so_many_values_what_they_are() -> None:
    """Further values have none; and a jail that sends more violates the protocol."""
    said, most = jail_pb2.StepTrace(), messages.MAX_KINDS
    kinds = {name(f"v{number}"): ValueKind(type="x" * 1_000, shape=(1,) * 40) for number in range(most + 1)}
    messages.fill_trace(said, StepTrace(kinds=kinds))
    assert most == len(messages.read_trace(said).kinds)
    with pytest.raises(ProtocolViolation):
        messages.read_trace(message(kinds=[*said.kinds, jail_pb2.ValueKind(location="name:v", type="int")]))
    with pytest.raises(ProtocolViolation):
        messages.read_trace(
            message(kinds=[jail_pb2.ValueKind(location="name:v", shape=[1] * 33, has_shape=True)])
        )


def heard(said: jail_pb2.StepTrace) -> tuple[StepTrace, jail_pb2.StepTrace]:
    """The trace that a supervisor reads, and the message that it passes on."""
    trace, again = (
        messages.read_relayed_trace(jail_pb2.StepTrace.FromString(said.SerializeToString())),
        jail_pb2.StepTrace(),
    )
    messages.fill_trace(again, trace)
    return trace, again


PLAIN = StepTrace(reads=TRACE.reads, writes=TRACE.writes, groups=TRACE.groups, kinds=TRACE.kinds)


@pytest.mark.parametrize(("trace", "goes_on"), [(PLAIN, True), (TRACE, False)])
def test_what_a_jail_says_is_told_again(trace: StepTrace, *, goes_on: bool) -> None:
    """Unchanged, where nothing of it is ever cut."""
    said = jail_pb2.StepTrace()
    messages.fill_trace(said, trace)
    found = messages.read_relayed_trace(jail_pb2.StepTrace.FromString(said.SerializeToString()))
    assert (trace, goes_on) == (found, bool(found.told))
    assert (trace, said) == heard(said)


def test_what_nobody_knows_in_it_is_not_told_again() -> None:
    """A jail cannot place data in records and with clients beside the known fields."""
    said = jail_pb2.StepTrace()
    messages.fill_trace(said, PLAIN)
    unknown = jail_pb2.StepTrace.FromString(said.SerializeToString() + b"\xfa\x7f\x04left")
    assert (PLAIN, said) == heard(unknown)


@pytest.mark.parametrize(
    "long",
    [
        message(kinds=[jail_pb2.ValueKind(location="name:v", type="x" * 1_000)]),
        message(unseen=["x" * 1_000]),
        message(reads=[jail_pb2.Seen(location="name:v", version="1")] * 100),
        message(reads=[jail_pb2.Seen(location="name:v", version="1")] * messages.MAX_LOCATIONS),
    ],
)
def test_what_is_cut_or_said_twice_is_told_as_it_was_understood(long: jail_pb2.StepTrace) -> None:
    """So that no jail gets more stored than its trace takes."""
    trace, again = heard(long)
    assert trace == messages.read_trace(again)
    assert again.ByteSize() < long.ByteSize()


def test_a_client_of_a_platform_gets_it() -> None:
    assert to_result(from_result(ExecutionResult(success=True, trace=TRACE))).trace == TRACE


def test_a_result_without_one_has_none() -> None:
    assert to_result(from_result(ExecutionResult(success=True))).trace is None


def test_it_is_not_in_the_text_of_a_result() -> None:
    assert "trace" not in repr(ExecutionResult(success=True, trace=TRACE))


def test_a_large_trace_says_that_anything_was_touched() -> None:
    """One location fewer is sent in full."""
    versions = {name(f"v{number}"): Version("1") for number in range(messages.MAX_LOCATIONS + 1)}
    most = dict(list(versions.items())[1:])
    said, too_much = jail_pb2.StepTrace(), jail_pb2.StepTrace()
    messages.fill_trace(said, StepTrace(writes=most))
    messages.fill_trace(too_much, StepTrace(writes=versions))
    assert most == messages.read_trace(said).writes
    assert {ANYTHING} == messages.read_trace(too_much).writes.keys()


def test_a_trace_that_takes_too_much_memory_says_that_anything_was_touched() -> None:
    """On both sides of the wall: locations that are long, with characters of four bytes each, or all different."""
    long = {name(f"\U0001f600{number}".ljust(900)): Version("1") for number in range(messages.MAX_LOCATIONS)}
    said, forged = jail_pb2.StepTrace(), jail_pb2.StepTrace()
    messages.fill_trace(said, StepTrace(writes=long))
    for place in long:
        forged.writes.add(location=place, version="1")
    assert {ANYTHING} == messages.read_trace(said).writes.keys() == messages.read_trace(forged).writes.keys()


@pytest.mark.parametrize("variable", ["v" * messages.MAX_LOCATION, "\udc80"])
def test_a_name_that_cannot_be_told_is_anything(variable: str) -> None:
    said = jail_pb2.StepTrace()
    messages.fill_trace(said, StepTrace(writes={name(variable): Version("1")}))
    assert ANYTHING in messages.read_trace(said).writes


def test_the_most_locations_pass() -> None:
    assert messages.MAX_LOCATIONS == len(
        messages.read_trace(message(reads=seen(messages.MAX_LOCATIONS))).reads
    )


@pytest.mark.parametrize(
    "hostile",
    [
        message(reads=seen(messages.MAX_LOCATIONS + 1)),
        message(mutated=["name:a"] * (messages.MAX_LOCATIONS + 1)),
        message(groups=[jail_pb2.LocationGroup()] * (messages.MAX_LOCATIONS + 1)),
        message(groups=[jail_pb2.LocationGroup(locations=["name:a"] * (messages.MAX_LOCATIONS + 1))]),
        message(mutated=["name:" + "a" * messages.MAX_LOCATION]),
        message(mutated=["elsewhere:a"]),
        message(mutated=[""]),
        message(writes=[jail_pb2.Seen(location="name:a", version="1" * (messages.MAX_VERSION + 1))]),
    ],
)
def test_what_a_jail_may_not_say(hostile: jail_pb2.StepTrace) -> None:
    with pytest.raises(ProtocolViolation):
        messages.read_trace(hostile)


def test_reasons_are_cut() -> None:
    found = messages.read_trace(message(opaque=["x" * 10_000] * 1_000, modules=["m"] * 10_000))
    assert (messages.MAX_REASONS, messages.MAX_REASON, messages.MAX_MODULES) == (
        len(found.opaque), len(found.opaque[0]), len(found.modules),
    )  # fmt: skip
