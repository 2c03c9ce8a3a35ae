"""The state machine of a conversation: a jail may answer the current request, once, and print."""

from __future__ import annotations

import pytest

from cenote_security.errors import ProtocolViolation
from cenote_worker.supervisor.frame_parser import (
    DoneReply,
    ExecutedReply,
    OutputEvent,
    ReadyEvent,
    RefusedReply,
    ReplyEvent,
    VariablesReply,
)
from cenote_worker.supervisor.protocol import JailConversation, Phase, RequestKind

EXECUTED = ExecutedReply(success=True, value=None, error=None, reply=None, duration=0.0)


def ready() -> JailConversation:
    conversation = JailConversation()
    conversation.hear(ReadyEvent())
    return conversation


def test_a_request_and_its_answer() -> None:
    """Ready, request, output, answer: idle again."""
    conversation = ready()
    number = conversation.ask(RequestKind.EXECUTE)
    assert conversation.hear(OutputEvent("stdout", "x")) is None
    assert conversation.hear(ReplyEvent(number, EXECUTED)) == EXECUTED
    assert conversation.phase is Phase.IDLE


def test_output_between_requests_is_allowed() -> None:
    """A background thread may print at any time."""
    assert ready().hear(OutputEvent("stdout", "x")) is None


@pytest.mark.parametrize("event", [OutputEvent("stdout", "x"), ReplyEvent(1, DoneReply())])
def test_nothing_before_ready(event: OutputEvent | ReplyEvent) -> None:
    """A jail that speaks before it is ready is broken."""
    with pytest.raises(ProtocolViolation, match="before"):
        JailConversation().hear(event)


def test_ready_only_once() -> None:
    """A second ready could hide an answer."""
    with pytest.raises(ProtocolViolation, match="second"):
        ready().hear(ReadyEvent())


def test_forged_answers() -> None:
    """Unrequested, of another kind, or repeated."""
    with pytest.raises(ProtocolViolation, match="without a request"):
        ready().hear(ReplyEvent(1, EXECUTED))
    conversation = ready()
    number = conversation.ask(RequestKind.EXECUTE)
    with pytest.raises(ProtocolViolation, match="another request"):
        conversation.hear(ReplyEvent(number + 1, EXECUTED))
    for wrong in (DoneReply(), VariablesReply(()), RefusedReply(0, "", "", ())):
        with pytest.raises(ProtocolViolation, match="in answer to execute"):
            conversation.hear(ReplyEvent(number, wrong))
    conversation.hear(ReplyEvent(number, EXECUTED))
    with pytest.raises(ProtocolViolation, match="without a request"):
        conversation.hear(ReplyEvent(number, EXECUTED))
