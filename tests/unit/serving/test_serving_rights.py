"""Tokens and their rights."""

from __future__ import annotations

import pytest

from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import RejectedError
from cenote_worker.serving.calls.call_parser import RIGHTS
from cenote_worker.serving.limits import MAX_TOKEN
from cenote_worker.serving.rights import Rights, bearer_token

NO_CALLS = {
    *("hello", "interrupt", "withdraw", "heard", "cancel", "chunk", "host_answer", "end_full_run", "goodbye"),
}
"""Fields of a frame that open no call: they belong to a call, or to the stream."""


@pytest.mark.parametrize(
    ("metadata", "token"),
    [
        ([], ""),
        ([("authorization", "Bearer abc")], "abc"),
        ([("x", "y"), ("authorization", "bearer abc ")], "abc"),
        ([("authorization", "Basic abc")], ""),
        ([("authorization", b"Bearer abc")], ""),
        ([("authorization", "Bearer " + "x" * (MAX_TOKEN - 7))], "x" * (MAX_TOKEN - 7)),
        ([("authorization", "Bearer " + "x" * MAX_TOKEN)], ""),
    ],
)
def test_a_token(metadata: list[tuple[str, str | bytes]], token: str) -> None:
    """The text after Bearer, unless it is too long."""
    assert token == bearer_token(metadata)


def test_a_right() -> None:
    """What was not granted is refused, and the error names the granted scopes and the required one."""
    rights = Rights(tenant="us", granted=frozenset(("read", "share")))
    rights.require("read")
    with pytest.raises(RejectedError, match=r"read, share, not run: .*'runtimes:write'"):
        rights.require("run")


def test_every_call_takes_a_right() -> None:
    """A new kind of call is refused until it is listed."""
    fields = {field.name for field in runtime_pb2.ClientFrame.DESCRIPTOR.oneofs[0].fields}
    assert fields - NO_CALLS == set(RIGHTS)
