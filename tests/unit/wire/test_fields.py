"""Fields are counted before an object is made for each."""

from __future__ import annotations

from contextlib import suppress

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_proto.v1 import checkpoint_pb2, jail_pb2
from cenote_security.errors import ProtocolViolation
from cenote_worker.transport.packets import check_field_count


def test_so_many_and_no_more() -> None:
    """At the limit, and one past it. A message without lists counts as one, whatever its content."""
    frame = jail_pb2.WorkerFrame()
    for _ in range(8):
        frame.reply.variables.variables.add(name="n", type="t", description="d")
    data = frame.SerializeToString()
    check_field_count(data, jail_pb2.WorkerFrame, 10)  # with the reply and its list
    with pytest.raises(ProtocolViolation):
        check_field_count(data, jail_pb2.WorkerFrame, 9)


def test_lists_in_lists_count() -> None:
    """Names of a group, groups of a state."""
    state = checkpoint_pb2.State(groups=[checkpoint_pb2.StoredGroup(names=["a"] * 5)] * 3)
    data = state.SerializeToString()
    check_field_count(data, checkpoint_pb2.State, 18)
    with pytest.raises(ProtocolViolation):
        check_field_count(data, checkpoint_pb2.State, 17)


def test_what_nobody_knows_counts_too() -> None:
    """Unknown fields are examined one by one, and so they are counted."""
    with pytest.raises(ProtocolViolation):
        check_field_count(b"\x98\x7d\x01" * 100, checkpoint_pb2.State, 99)


@given(st.binary(max_size=200))
def test_what_the_parser_takes_can_be_counted(data: bytes) -> None:
    """Noise is refused, as by the parser; it may be stricter, for groups, which we do not use."""
    with suppress(DecodeError):
        checkpoint_pb2.State.FromString(data)
        with suppress(ProtocolViolation):
            check_field_count(data, checkpoint_pb2.State, 200)


@given(
    st.lists(st.text(max_size=3), max_size=3),
    st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=3), max_size=3),
)
@settings(max_examples=40)
def test_our_own_messages_are_never_refused(names: list[str], groups: list[list[int]]) -> None:
    """Each field is counted once."""
    state = checkpoint_pb2.State(names=names)
    for sizes in groups:
        state.groups.add(parts=[checkpoint_pb2.StoredPart(size=size) for size in sizes])
    most = len(names) + len(groups) + sum(map(len, groups))
    check_field_count(state.SerializeToString(), checkpoint_pb2.State, most)
