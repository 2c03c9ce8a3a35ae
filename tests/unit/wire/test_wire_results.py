"""Results, statuses, replies and decisions are the same after the wire as before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.wire import strategies

from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import ProtocolViolation
from cenote_worker.egress.ledger import Decision
from cenote_worker.execution.results import (
    ErrorInfo,
    ExecutionResult,
    FileInfo,
    JailStatus,
    LiveOutput,
    VariableInfo,
)
from cenote_worker.supervisor import frame_parser
from cenote_worker.transport.content import INLINE_LIMIT, Content
from cenote_worker.wire import replies, results


def through(message: runtime_pb2.CellResult) -> runtime_pb2.CellResult:
    return runtime_pb2.CellResult.FromString(message.SerializeToString())


@given(strategies.results)
def test_a_result(result: ExecutionResult) -> None:
    """Every field, including None."""
    assert result == results.to_result(through(results.from_result(result)))


def test_a_result_with_lone_surrogates() -> None:
    """They travel as Python prints them: a message holds no others."""
    bad = "a\udc80b"
    result = ExecutionResult(
        success=False,
        stdout=bad,
        stderr=bad,
        value=bad,
        reply=bad,
        outputs=({bad: bad},),
        error=ErrorInfo(type=bad, message=bad, traceback=bad, reason=bad),
    )
    back = results.to_result(through(results.from_result(result)))
    assert ("a\\udc80b", {"a\\udc80b": "a\\udc80b"}) == (back.stdout, back.outputs[0])
    assert back.error is not None
    assert "a\\udc80b" == back.error.message == back.error.type == back.value == back.reply


def test_a_result_of_a_later_version() -> None:
    """An unknown state is the worst of the known ones."""
    assert "lost" == results.to_result(runtime_pb2.CellResult(state=77)).state  # type: ignore[arg-type]


@given(strategies.statuses)
def test_a_status(status: JailStatus) -> None:
    """No step is None, not 0."""
    assert status == results.to_status(results.from_status(status))


@given(strategies.looks)
def test_output_of_a_running_cell(found: LiveOutput) -> None:
    assert found == results.to_live_output(results.from_live_output(found))


def test_a_server_that_knows_no_live_output() -> None:
    """Its status has the running step, and no output."""
    old = runtime_pb2.Status(memory=1, step=3, author="ana")
    assert LiveOutput(step=3, author="ana") == results.to_live_output(old)


@given(st.lists(strategies.decisions, max_size=4).map(tuple))
def test_decisions(decisions: tuple[Decision, ...]) -> None:
    """In order."""
    assert decisions == results.to_decisions(results.from_decisions(decisions))


REPLIES = (
    st.just(frame_parser.DoneReply())
    | st.builds(frame_parser.VariablesReply, st.lists(strategies.infos, max_size=4).map(tuple))
    | st.builds(frame_parser.FolderReply, st.lists(strategies.files, max_size=4).map(tuple), st.booleans())
    | st.builds(
        frame_parser.RefusedReply,
        st.sampled_from(jail_pb2.Refusal.Kind.values()),
        strategies.texts,
        strategies.texts,
        st.lists(strategies.names, max_size=5).map(tuple),
    )
)


@given(REPLIES)
def test_a_reply(reply: replies.Reply) -> None:
    """Without content nothing follows."""
    message, follows = replies.from_reply(reply)
    assert (reply, None) == (replies.to_reply(message, None), follows)


@pytest.mark.parametrize("size", [0, INLINE_LIMIT, INLINE_LIMIT + 1])
@pytest.mark.parametrize("of_file", [True, False], ids=["file", "value"])
def test_a_reply_with_content(size: int, of_file: bool) -> None:
    """Small content is in the message; for large content the message says only that it follows."""
    content = Content.of_bytes(b"x" * size)
    reply = (
        frame_parser.FileReply(content)
        if of_file
        else frame_parser.ValueReply(content, VariableInfo(name="x", type="t"))
    )
    message, follows = replies.from_reply(reply)
    payload = replies.payload_of(message)
    assert payload is not None
    assert (size, size > INLINE_LIMIT) == (payload.size, payload.attached)
    assert (content if size > INLINE_LIMIT else None) is follows
    assert reply == replies.to_reply(message, content)
    content.close()


def test_a_cell_s_answer_is_no_reply() -> None:
    """It has a separate message."""
    with pytest.raises(ProtocolViolation):
        replies.to_reply(jail_pb2.Reply(executed=jail_pb2.Executed()), None)


def test_a_reply_with_nothing_in_it() -> None:
    """It is refused, not guessed."""
    with pytest.raises(ProtocolViolation):
        replies.to_reply(jail_pb2.Reply(), None)


def test_kinds_of_files_have_their_numbers() -> None:
    """A kind of file has the same number on both sides."""
    entry = FileInfo(raw=b"x", kind="link")
    message, _ = replies.from_reply(frame_parser.FolderReply((entry,), False))
    assert jail_pb2.FileEntry.LINK == message.folder.entries[0].kind
