"""Any text and any size fit into any message, so that no message is lost because of them."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.wire import strategies
from tests.unit.history.test_history_messages import events

from cenote_proto.scalars import MAX_UINT64, make, unsigned, utf8_text, utf8_texts
from cenote_proto.v1 import history_pb2, jail_pb2
from cenote_security.printable import printable
from cenote_worker.execution import messages, trace
from cenote_worker.execution.messages import fill_variable
from cenote_worker.execution.results import (
    Built,
    Patched,
    PatchedStep,
    PatchRefusal,
    Rollback,
    SnapshotInfo,
    UnmadeCall,
    VariableInfo,
)
from cenote_worker.execution.trace import StepTrace, ValueKind, Version
from cenote_worker.history.messages import from_event
from cenote_worker.record.journal import to_entry
from cenote_worker.supervisor.frame_parser import RefusedReply, SurveyedReply, VariablesReply, read_info
from cenote_worker.wire.patches import from_built, from_patched
from cenote_worker.wire.replies import from_reply, from_rollback, from_snapshots
from cenote_worker.wire.results import from_decisions, from_error, from_info, from_result, from_status

V1 = Path(__file__).parents[3] / "protos" / "cenote_proto" / "v1"
ANY_TEXT = st.text(st.characters())
"""Lone surrogates too: Hypothesis includes all."""


def kinds() -> Iterator[Descriptor]:
    for path in sorted(V1.glob("*_pb2.py")):
        module = importlib.import_module(f"cenote_proto.v1.{path.stem}")
        for kind in module.DESCRIPTOR.message_types_by_name.values():
            yield from _with_inner(kind)


def _with_inner(kind: Descriptor) -> Iterator[Descriptor]:
    if not kind.GetOptions().map_entry:
        yield kind
    for inner in kind.nested_types:
        yield from _with_inner(inner)


def is_mapping(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def values_of(field: FieldDescriptor) -> st.SearchStrategy[Any] | None:
    """Values of one field that a program may have; None for fields without text."""
    if is_mapping(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        text = FieldDescriptor.TYPE_STRING
        return st.dictionaries(ANY_TEXT, ANY_TEXT) if (key.type, value.type) == (text, text) else None
    if field.type != FieldDescriptor.TYPE_STRING:
        return None
    return st.lists(ANY_TEXT) if field.is_repeated else ANY_TEXT


WITH_TEXT = [kind for kind in kinds() if any(values_of(field) is not None for field in kind.fields)]


@pytest.mark.sweep
@pytest.mark.parametrize("kind", WITH_TEXT, ids=lambda kind: kind.full_name)
def test_every_text_of_every_message(kind: Descriptor) -> None:
    """It is made, sent and read back; text that UTF-8 can encode arrives unchanged."""
    strategies = {field.name: found for field in kind.fields if (found := values_of(field)) is not None}
    made: type[Message] = GetMessageClass(kind)

    @settings(max_examples=15, database=None)
    @given(st.fixed_dictionaries({}, optional=strategies))
    def check(fields: dict[str, Any]) -> None:
        message = make(made, **fields)
        back = made.FromString(message.SerializeToString())
        assert message == back
        for name, value in fields.items():
            if value and not _is_in_oneof(kind, name):
                assert _cleaned(value) == _plain(getattr(back, name))

    check()


def _is_in_oneof(kind: Descriptor, name: str) -> bool:
    """Of these only the last is set."""
    found = kind.fields_by_name[name].containing_oneof
    return found is not None and len(found.fields) > 1


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return utf8_text(value)
    if isinstance(value, dict):
        return {utf8_text(key): utf8_text(item) for key, item in value.items()}
    assert isinstance(value, list)
    return utf8_texts(value)


def _plain(value: Any) -> object:
    if isinstance(value, str):
        return value
    return dict(value) if hasattr(value, "keys") else list(value)


@given(ANY_TEXT)
def test_a_text_that_utf8_can_write_stays_as_it_is(text: str) -> None:
    """In other texts, the halves of pairs are escaped, and nothing else."""
    clean = utf8_text(text)
    assert text.encode("utf-8", "backslashreplace") == clean.encode()
    assert clean == utf8_text(clean)


def test_a_lone_surrogate_is_written_as_python_writes_it() -> None:
    assert "half of \\ud83d and \\udcff; whole \U0001f600" == utf8_text(
        "half of \ud83d and \udcff; whole \U0001f600"
    )


class Shouting(str):
    """A value that a jail may return: a text whose methods return something else."""

    def isascii(self) -> bool:
        return True

    def encode(self, *_: object, **__: object) -> bytes:
        raise AssertionError


def test_a_text_with_methods_of_its_own() -> None:
    assert "\\ud83d" == make(jail_pb2.HostError, type=Shouting("\ud83d")).type


@given(st.integers())
def test_what_was_measured_is_brought_into_the_bounds(number: int) -> None:
    found = unsigned(number)
    assert found == (number if 0 <= number <= MAX_UINT64 else 0 if number < 0 else MAX_UINT64)


def test_a_number_that_a_caller_gives_is_not_changed() -> None:
    with pytest.raises(ValueError, match="out of range"):
        make(jail_pb2.Notice, name="x", step=-1)


def test_the_add_of_a_list() -> None:
    message = jail_pb2.Executed()
    make(message.notices.add, name="\ud83d", step=3)
    assert [("\\ud83d", 3)] == [(notice.name, notice.step) for notice in message.notices]


@given(
    st.builds(
        VariableInfo,
        name=ANY_TEXT,
        type=ANY_TEXT,
        shape=st.none() | st.tuples(st.integers(), st.integers()),
        size=st.integers(),
        description=ANY_TEXT,
    )
)
def test_whatever_is_said_of_a_variable(info: VariableInfo) -> None:
    """CPython reports a negative size for a negative number of 181 bits and more; a library's object, any shape."""
    message = jail_pb2.VariableInfo()
    fill_variable(message, info)
    read = read_info(jail_pb2.VariableInfo.FromString(message.SerializeToString()))
    assert (printable(utf8_text(info.name)), unsigned(info.size)) == (read.name, read.size)
    assert (None if info.shape is None else tuple(map(unsigned, info.shape))) == read.shape


HALF = "\ud83d"
CLOSED = frozenset(("state", "status", "kind", "effect"))
"""Fields with a fixed set of words."""


def spoilt(value: Any) -> Any:
    """The same with half a pair in each text in it, at any depth."""
    if isinstance(value, str):
        return value + HALF
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field for field in dataclasses.fields(value) if field.init and field.name not in CLOSED]
        return dataclasses.replace(value, **{each.name: spoilt(getattr(value, each.name)) for each in fields})
    if isinstance(value, Mapping):
        return MappingProxyType({spoilt(key): spoilt(item) for key, item in value.items()})
    if isinstance(value, tuple | frozenset):
        return type(value)(map(spoilt, value))
    return value


REFUSAL = PatchRefusal(kind="stale", facts=("a", 3), message="m")
PATCHED = Patched(
    status="applied",
    head=3,
    changed=("x",),
    blocked=UnmadeCall(target="t", method="m", arguments="a"),
    refusal=REFUSAL,
    notes=("n",),
)
BUILT = Built(
    status="built",
    head=3,
    rebuilt=("m.py",),
    applied=PATCHED,
    steps=(PatchedStep(origin=1, change="c", code="x"),),
    ran=(("t", "why"),),
    refusal=REFUSAL,
)


@pytest.mark.parametrize(
    ("made", "given_"),
    [
        (from_result, strategies.results),
        (from_error, strategies.errors),
        (from_status, strategies.statuses),
        (from_info, strategies.infos),
        (lambda decision: from_decisions([decision]), strategies.decisions),
        (from_patched, st.just(PATCHED)),
        (from_built, st.just(BUILT)),
        (from_rollback, st.just(Rollback(step=3, severed=("s",), unkept="u", amiss=("a",)))),
        (lambda one: from_snapshots([one]), st.just(SnapshotInfo(step=3, label="l", memory=4))),
        (lambda reply: from_reply(reply)[0], st.just(RefusedReply(0, "n", "m", ("a", "b")))),
        (lambda reply: from_reply(reply)[0], st.just(VariablesReply((VariableInfo(name="n", type="t"),)))),
        (lambda reply: from_reply(reply)[0], st.just(SurveyedReply(("s",), 3, ("a",)))),
        (lambda refused: to_entry("key" + HALF, refused), st.just(RefusedReply(0, "n", "m", ("a",)))),
        (lambda event: history_pb2.HistoryEvent.FromString(from_event(event)), events),
    ],
)
def test_whatever_is_made_of_objects(
    made: Callable[[Any], Message], given_: st.SearchStrategy[object]
) -> None:
    """Everything that a runtime returns is sent, with half a pair in each of its texts."""

    @settings(max_examples=25, database=None)
    @given(given_)
    def check(value: object) -> None:
        message = made(spoilt(value))
        assert message == type(message).FromString(message.SerializeToString())

    check()


def test_what_a_trace_tells_beside_its_locations() -> None:
    """Reasons and types name the user's classes and functions."""
    place = trace.name("x")
    told = StepTrace(
        reads=MappingProxyType({}),
        writes=MappingProxyType({place: Version("v")}),
        modules=("m" + HALF,),
        opaque=("o" + HALF,),
        unrepeatable=("u" + HALF,),
        unseen=("s" + HALF,),
        unportable=MappingProxyType({place: "p" + HALF}),
        kinds=MappingProxyType({place: ValueKind(type="T" + HALF, shape=(-1, 2**70))}),
    )
    message = jail_pb2.StepTrace()
    messages.fill_trace(message, told)
    back = messages.read_trace(jail_pb2.StepTrace.FromString(message.SerializeToString()))
    assert ("p\\ud83d", ("o\\ud83d",)) == (back.unportable[place], back.opaque)
    assert ValueKind(type="T\\ud83d", shape=(0, MAX_UINT64)) == back.kinds[place]
