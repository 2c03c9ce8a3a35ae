"""A process may be killed between noting that it sends a request and sending it: then the jail is asked."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Iterable

import pytest
from tests.support.adoption.fixtures import Node, join, value
from tests.support.adoption.supervising import JAIL
from tests.waiting import PATIENCE

from cenote_proto.v1 import jail_pb2, journal_pb2
from cenote_proto.v1.journal_pb2 import JournalEntry
from cenote_security.errors import ProtocolViolation, UnavailableError
from cenote_worker.descriptor_store.message import close_all
from cenote_worker.execution.results import ExecutionResult
from cenote_worker.record.journal import JournalFile, entries_of
from cenote_worker.supervisor.frame_parser import DoneReply, ReplyEvent, SurveyedReply
from cenote_worker.supervisor.jail_handle import JailEnds
from cenote_worker.supervisor.protocol import JailConversation, Phase, RequestKind, RequestLost
from cenote_worker.transport.packets import send_packet


def rewrite(node: Node, change: Callable[[list[JournalEntry]], Iterable[JournalEntry]]) -> None:
    """Rewrites the journal as if the process had been killed a moment earlier or later."""
    kept = node.descriptor_store.get("runtime/adopted/journal")
    assert kept is not None
    (descriptor,) = kept.descriptors
    written = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    os.close(descriptor)
    file = JournalFile.create(change(list(entries_of(written))))
    node.descriptor_store.put("runtime/adopted/journal", b"", [file.descriptor])
    file.close()


def test_a_request_that_never_left_is_refused_as_such(node: Node) -> None:
    """Nothing ran: its client is informed, and its key may be used again."""
    victim = node.victim()
    victim.execute("x = 1", "a")
    victim.value("a")
    victim.kill()
    late = JournalEntry(asked=journal_pb2.Asked(number=2, ask="EXECUTE", key="late", step=2))
    rewrite(node, lambda entries: [*entries, late])
    runtime = node.adopt()
    outcome = join(runtime, "late").outcome()
    if isinstance(outcome, UnavailableError):  # else the jail had been asked before
        outcome = join(runtime, "late").outcome()
    assert isinstance(outcome, ExecutionResult)
    assert ("ZeroDivisionError", 3) == (getattr(outcome.error, "type", None), outcome.step)
    assert "1" == value(runtime, "x")


@pytest.mark.slow
def test_a_request_that_did_leave_gets_its_answer(node: Node) -> None:
    """It was sent, and only the note of that is missing: the cell is not run a second time."""
    victim = node.victim()
    victim.execute("import time\nx = globals().get('x', 0) + 1\nprint('begun')\ntime.sleep(1)\nx", "slow")
    victim.heard("slow", "begun")
    victim.kill()
    rewrite(node, lambda entries: (entry for entry in entries if not entry.HasField("sent")))
    runtime = node.adopt()
    result = join(runtime, "slow").result()
    assert ("1", "begun\n") == (result.value, result.stdout)
    assert "1" == value(runtime, "x")


def conversation() -> JailConversation:
    """A successor's conversation, in doubt about request 7."""
    taken_up = JailConversation()
    taken_up.take_up(7, RequestKind.DELETE, ready=True)
    assert 8 == taken_up.probe()
    return taken_up


def surveyed(number: int) -> ReplyEvent:
    return ReplyEvent(number, SurveyedReply(("a",), 3))


def done(number: int) -> ReplyEvent:
    return ReplyEvent(number, DoneReply())


def test_the_order_of_the_answers_says_what_was_sent() -> None:
    """The jail answers in order: an answer to the later question means that the earlier request never arrived."""
    lost = conversation()
    assert RequestLost(("a",), 3) == lost.hear(surveyed(8))
    assert Phase.IDLE is lost.phase
    sent = conversation()
    assert DoneReply() == sent.hear(done(7))
    assert Phase.BUSY is sent.phase
    assert sent.hear(surveyed(8)) is None
    assert Phase.IDLE is sent.phase
    assert 9 == sent.ask(RequestKind.EXECUTE) == lost.ask(RequestKind.EXECUTE)


def test_a_jail_that_was_not_filled_yet_is_started_anew(node: Node) -> None:
    """Its process was killed while it injected the runtime's values: no cell has run in it."""
    victim = node.victim()
    victim.tell("inject", "gift", name="gift", value=7, size=100_000)
    victim.value("gift")
    victim.execute("import os\nos.getpid()", "pid")
    victim.value("pid")
    victim.kill()
    rewrite(node, lambda entries: (entry for entry in entries if not entry.HasField("filled")))
    former = node.descriptor_store.get(JAIL)
    assert former is not None
    node.spare()
    runtime = node.adopt()
    assert "7" == value(runtime, "gift[0]")
    poll = select.poll()
    poll.register(former.descriptors[0], select.POLLIN)
    assert poll.poll(PATIENCE * 1000), "the half-filled jail was ended"
    close_all(former.descriptors)


def test_a_jail_of_a_former_start_is_not_taken_for_the_last(node: Node) -> None:
    """The process was killed between two jails: the later one was never stored, so it has ended."""
    victim = node.victim()
    victim.execute("x = 1", "x")
    victim.value("x")
    victim.kill()
    later = JournalEntry(began=journal_pb2.Began(jail=2))
    rewrite(node, lambda entries: [*entries, later])
    node.spare()
    runtime = node.adopt()
    assert "False" == value(runtime, "'x' in globals()")


def test_a_question_whose_hearer_died_is_asked_again() -> None:
    """Only the answer to the last one counts."""
    asked = conversation()
    assert 9 == asked.probe()
    assert asked.hear(surveyed(8)) is None
    assert Phase.BUSY is asked.phase
    assert RequestLost(("a",), 3) == asked.hear(surveyed(9))


def test_an_answer_to_a_former_supervisor_is_none_to_the_next() -> None:
    """Two died in a row: the question of each is answered, even if the last one has continued since."""
    second = JailConversation()
    second.take_up(7, RequestKind.EXECUTE, ready=True, asked=200)
    assert 201 == second.probe(200)
    assert second.hear(surveyed(101)) is None
    assert Phase.BUSY is second.phase
    assert RequestLost(("a",), 3) == second.hear(surveyed(201))
    third = JailConversation()
    third.take_up(7, None, ready=True, asked=200)  # the second had an answer, and not the one to its question
    assert 8 == third.ask(RequestKind.DELETE)
    assert third.hear(surveyed(101)) is None
    assert DoneReply() == third.hear(done(8))
    assert third.hear(surveyed(200)) is None
    for forged in (surveyed(201), done(150), surveyed(7)):
        with pytest.raises(ProtocolViolation):
            third.hear(forged)


def test_two_supervisors_in_a_row_that_ask_are_told_apart(node: Node) -> None:
    """The worker dies, and the supervisor that asks about its cell, twice: the copy answers each question. Taken for
    one question, the second answer ended the jail as an answer to another request.
    """
    victim = node.victim()
    victim.execute("x = 1", "x")
    victim.value("x")
    victim.kill()
    late = JournalEntry(asked=journal_pb2.Asked(number=2, ask="EXECUTE", key="late", step=2))
    rewrite(node, lambda entries: [*entries, late])
    ends = node.descriptor_store.get(JAIL)
    assert ends is not None
    frames = socket.socket(fileno=JailEnds.arrived(ends.record, ends.descriptors).frames.detach())
    question = jail_pb2.Request(
        id=3
    )  # as asked by a supervisor that numbered its questions after the request
    question.survey.SetInParent()
    send_packet(frames, question.SerializeToString())
    frames.close()
    runtime = node.adopt()
    for number in range(3):
        assert "1" == value(runtime, f"{number}; x")


def test_an_answer_to_a_former_try_counts_for_nothing() -> None:
    """Each successor repeats a rollback; the worker may answer the attempt of an earlier one."""
    taken_up = JailConversation()
    taken_up.take_up(7, RequestKind.ROLLBACK, ready=True)
    assert (8, 9) == (taken_up.again(), taken_up.again())
    assert [None, None] == [taken_up.hear(surveyed(number)) for number in (7, 8)]
    assert Phase.BUSY is taken_up.phase
    assert SurveyedReply(("a",), 3) == taken_up.hear(surveyed(9))
    assert Phase.IDLE is taken_up.phase
    with pytest.raises(ProtocolViolation):
        taken_up.hear(surveyed(8))


def test_a_jail_that_nobody_held_is_reported(node: Node) -> None:
    """Supervisor and descriptor store ended together: a client that joins the running cell learns that it is lost."""
    victim = node.victim()
    victim.execute("import time\nprint('begun')\ntime.sleep(60)", "slow")
    victim.heard("slow", "begun")
    victim.kill()
    node.descriptor_store.drop(JAIL)
    node.spare()
    runtime = node.adopt()
    lost = join(runtime, "slow").result()
    assert ("lost", "killed", 1) == (lost.state, lost.error and lost.error.reason, lost.step)
    assert "2" == value(runtime, "1 + 1")


def test_an_idle_jail_that_nobody_held_is_reported_once(node: Node) -> None:
    """By the next cell, which does not run; the one after it has a fresh jail."""
    victim = node.victim()
    victim.execute("x = 1", "x")
    victim.value("x")
    victim.kill()
    node.descriptor_store.drop(JAIL)
    node.spare()
    runtime = node.adopt()
    assert "lost" == join(runtime, "next").result().state
    assert "2" == value(runtime, "1 + 1")


def test_a_reset_that_was_under_way_is_finished(node: Node) -> None:
    """Its process was killed between noting it and ending the jail: the reset state does not come back."""
    victim = node.victim()
    victim.execute("x = 1", "x")
    victim.value("x")
    victim.kill()
    rewrite(node, lambda entries: [*entries, JournalEntry(mourned=journal_pb2.Mourned())])
    node.spare()
    runtime = node.adopt()
    assert "False" == value(runtime, "'x' in globals()")
