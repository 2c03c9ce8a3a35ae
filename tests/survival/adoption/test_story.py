"""What can be restored from the entries of a journal."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_proto.v1 import jail_pb2, journal_pb2, runtime_pb2
from cenote_proto.v1.journal_pb2 import JournalEntry
from cenote_worker.record.journal import JournalFile, entries_of
from cenote_worker.record.journal_replay import MAX_OUTCOMES, JailReplay, JournalReplay, ReplayedRequest

LIMIT = 200_000

READY = JournalEntry(
    arrived=journal_pb2.Arrived(data=jail_pb2.WorkerFrame(ready=jail_pb2.Ready(pid=2)).SerializeToString())
)
TAKEN = JournalEntry(taken=journal_pb2.Taken())


def began(jail: int) -> JournalEntry:
    return JournalEntry(began=journal_pb2.Began(jail=jail))


def asked(number: int, key: str = "k") -> JournalEntry:
    return JournalEntry(asked=journal_pb2.Asked(number=number, ask="EXECUTE", key=key, step=number))


def output(text: str) -> JournalEntry:
    frame = jail_pb2.WorkerFrame(output=jail_pb2.Output(text=text))
    return JournalEntry(arrived=journal_pb2.Arrived(data=frame.SerializeToString()))


def display(text: str = "", **told: object) -> JournalEntry:
    frame = jail_pb2.WorkerFrame(display=jail_pb2.Display(types=[text] if text else [], **told))
    return JournalEntry(arrived=journal_pb2.Arrived(data=frame.SerializeToString()))


def replied(number: int) -> JournalEntry:
    frame = jail_pb2.WorkerFrame(reply=jail_pb2.Reply(id=number, executed=jail_pb2.Executed(success=True)))
    return JournalEntry(arrived=journal_pb2.Arrived(data=frame.SerializeToString()))


def settled(key: str, step: int) -> JournalEntry:
    result = runtime_pb2.CellResult(success=True, step=step)
    return JournalEntry(settled=journal_pb2.Settled(key=key, result=result))


def atomic(number: int, key: str) -> JournalEntry:
    return JournalEntry(
        asked=journal_pb2.Asked(number=number, ask="EXECUTE", key=key, step=number, atomic=True)
    )


def undoing(number: int, key: str) -> JournalEntry:
    failed = runtime_pb2.CellResult(step=number)
    return JournalEntry(asked=journal_pb2.Asked(number=number + 1, ask="ROLLBACK", key=key, failed=failed))


def patch(key: str) -> JournalEntry:
    return JournalEntry(patch_begun=journal_pb2.PatchBegun(key=key, head=1, steps=2))


def of_aside(entry: JournalEntry) -> JournalEntry:
    return JournalEntry(**{entry.WhichOneof("body"): getattr(entry, entry.WhichOneof("body"))}, aside=True)  # type: ignore[arg-type]


SET_ASIDE = JournalEntry(set_aside=journal_pb2.SetAside(intact=True))
TAKEN_BACK = JournalEntry(taken_back=journal_pb2.TakenBack())
SENT = JournalEntry(sent=journal_pb2.Sent())


def cell(number: int, key: str, texts: list[str]) -> list[JournalEntry]:
    """All entries of one cell."""
    heard = [entry for text in texts for entry in (output(text), TAKEN)]
    return [asked(number, key), SENT, *heard, replied(number), TAKEN, settled(key, number)]


OF_JAILS = st.one_of(
    st.builds(began, st.integers(1, 3)),
    st.builds(asked, st.integers(1, 5), st.sampled_from(["", "a", "b"])),
    st.builds(undoing, st.integers(1, 5), st.sampled_from(["a", "b"])),
    st.builds(atomic, st.integers(1, 5), st.sampled_from(["a", "b"])),
    st.builds(patch, st.sampled_from(["a", "b"])),
    st.builds(output, st.text(max_size=20)),
    st.builds(replied, st.integers(1, 5)),
    st.builds(settled, st.sampled_from(["a", "b"]), st.integers(1, 5)),
    st.builds(lambda n: JournalEntry(accepted=journal_pb2.Accepted(injection=n)), st.integers(1, 9)),
    st.builds(lambda n: JournalEntry(host_called=journal_pb2.HostCalled(id=n)), st.integers(1, 3)),
    st.builds(lambda n: JournalEntry(host_answered=journal_pb2.HostAnswerSent(id=n)), st.integers(1, 3)),
    st.builds(lambda n: JournalEntry(skipped=journal_pb2.Skipped(characters=n)), st.integers(1, 99)),
    st.builds(lambda at: JournalEntry(interrupted=journal_pb2.Interrupted(at=at)), st.floats(1, 9)),
    st.sampled_from(
        [
            READY,
            SENT,
            JournalEntry(unsent=journal_pb2.Unsent()),
            JournalEntry(ended=journal_pb2.Ended(reason="exit")),
            JournalEntry(mourned=journal_pb2.Mourned()),
            JournalEntry(filled=journal_pb2.Filled()),
        ]
    ),
)

ENTRIES = st.one_of(OF_JAILS, OF_JAILS.map(of_aside), st.sampled_from([SET_ASIDE, TAKEN_BACK]))


def told(story: JournalReplay) -> object:
    """Everything that a successor uses, comparable."""
    return (
        dict(story.forgotten),
        story.steps,
        story.injections,
        story.patch and story.patch.SerializeToString(),
        [(key, one.settled.SerializeToString(), one.printed.after(0)) for key, one in story.outcomes.items()],
        told_jail(story.current),
        story.aside and told_jail(story.aside),
    )


def told_jail(jail: JailReplay) -> object:
    return (
        [(key, told_request(each)) for key, each in jail.held.items()],
        jail.jail.SerializeToString(),
        jail.ended and jail.ended.reason,
        jail.background.after(0),
        sorted(jail.host_calls),
        jail.request and told_request(jail.request),
    )


def told_request(request: ReplayedRequest) -> object:
    return (
        request.asked.SerializeToString(),
        request.sent,
        request.answered,
        request.interrupted and request.interrupted.at,
        request.printed.after(0),
        [packet.SerializeToString() for packet in request.packets],
    )


def test_a_cell_under_way_is_told_as_it_stands() -> None:
    """What was sent, what it printed, and that it has no answer yet."""
    story = JournalReplay.of([began(1), READY, TAKEN, asked(1), SENT, output("a"), TAKEN, output("b")], LIMIT)
    assert story.current.request is not None
    assert (0, [("stdout", "ab")]) == story.current.request.printed.after(0)
    assert (True, False) == (story.current.request.sent, story.current.request.answered)
    assert (True, 1, True) == (story.current.jail.ready, story.current.jail.number, story.current.untaken)


def test_an_answer_without_an_outcome_is_kept_for_the_successor() -> None:
    """It was taken from the socket, and not yet reported."""
    story = JournalReplay.of([began(1), READY, TAKEN, asked(1), SENT, replied(1), TAKEN], LIMIT)
    assert story.current.request is not None
    assert (True, 1) == (story.current.request.answered, len(story.current.request.packets))


def test_an_outcome_keeps_the_output_of_its_cell() -> None:
    """A client that joins late gets both."""
    story = JournalReplay.of([began(1), READY, TAKEN, *cell(1, "k", ["a", "b"])], LIMIT)
    assert story.current.request is None
    assert (0, [("stdout", "ab")]) == story.outcomes["k"].printed.after(0)
    assert 1 == story.steps


def test_an_atomic_cell_moves_the_head_when_its_state_is_kept() -> None:
    """An answered one may still be undone: a successor then rolls back to its start, and its output stays."""
    begun = [began(1), READY, TAKEN, *cell(1, "k", []), atomic(2, "a"), SENT, output("x"), TAKEN]
    answered = JournalReplay.of([*begun, replied(2), TAKEN], LIMIT)
    assert (1, True) == (
        answered.current.jail.head,
        answered.current.request and answered.current.request.answered,
    )
    undone = JournalReplay.of([*begun, replied(2), TAKEN, undoing(2, "a")], LIMIT)
    assert undone.current.request is not None
    assert (1, (0, [("stdout", "x")])) == (undone.current.jail.head, undone.current.request.printed.after(0))
    assert 2 == JournalReplay.of([*begun, replied(2), TAKEN, settled("a", 2)], LIMIT).current.jail.head


def test_answers_that_wait_for_their_state_to_be_stored_are_kept_behind_other_requests() -> None:
    """In order, until each is settled; once their jail has ended, only the fact that they ran is known."""
    begun = [began(1), READY, TAKEN]
    for number, key in ((1, "a"), (2, "b")):
        begun += [asked(number, key), SENT, output(key), TAKEN, replied(number), TAKEN]
    begun += [asked(3, ""), SENT]
    story = JournalReplay.of(begun, LIMIT)
    assert ["a", "b"] == list(story.current.held)
    assert story.current.request is not None
    assert (3, "") == (story.current.request.asked.number, story.current.request.asked.key)
    later = JournalReplay.of([*begun, settled("a", 1)], LIMIT)
    assert (["b"], ["a"]) == (list(later.current.held), list(later.outcomes))
    assert (0, [("stdout", "a")]) == later.outcomes["a"].printed.after(0)
    for end in (began(2), JournalEntry(ended=journal_pb2.Ended(reason="exit"))):
        gone = JournalReplay.of([*begun, end], LIMIT)
        assert ([], {"a": 1, "b": 2}) == (list(gone.current.held), dict(gone.forgotten))


def test_a_patch_is_under_way_until_its_key_is_settled() -> None:
    """Whichever other requests finish."""
    begun = [began(1), READY, TAKEN, patch("p"), *cell(3, "k", [])]
    story = JournalReplay.of(begun, LIMIT)
    assert story.patch is not None
    assert (1, 2) == (story.patch.head, story.patch.steps)
    assert JournalReplay.of([*begun, settled("p", 0)], LIMIT).patch is None


def test_a_jail_that_waits_is_gone_on_with_until_the_patch_is_settled() -> None:
    """Its events in the meantime count; of cells in the later jail only the fact that they ran is known."""
    begun = [began(1), READY, TAKEN, *cell(1, "k", []), patch("p"), SET_ASIDE, began(2), READY, TAKEN]
    begun += [asked(3, "other"), of_aside(JournalEntry(moved=journal_pb2.Moved(step=1, reason="exit")))]
    back = JournalReplay.of([*begun, TAKEN_BACK], LIMIT)
    assert back.patch is not None
    assert (1, 3, True) == (back.current.jail.jail, back.steps, back.patch.intact)
    assert ({"other": 3}, "exit") == (
        dict(back.forgotten),
        back.current.setback and back.current.setback.reason,
    )
    stays = JournalReplay.of([*begun, replied(3), settled("p", 0), of_aside(began(9))], LIMIT)
    assert (2, None, None) == (stays.current.jail.jail, stays.aside, stays.patch)
    assert "other" == (stays.current.request and stays.current.request.asked.key)


def test_a_fresh_jail_begins_with_nothing_under_way() -> None:
    """State of the former jail is forgotten; outcomes and injections belong to the runtime."""
    accepted = JournalEntry(accepted=journal_pb2.Accepted(injection=3))
    former = [began(1), READY, TAKEN, accepted, *cell(1, "k", []), asked(2), SENT, output("x")]
    story = JournalReplay.of([*former, began(2)], LIMIT)
    assert (None, None, False, False, 2) == (
        story.current.ended,
        story.current.request,
        story.current.untaken,
        story.current.jail.ready,
        story.current.jail.jail,
    )
    assert (["k"], [3]) == (list(story.outcomes), story.injections)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(ENTRIES, max_size=30))
def test_retelling_tells_the_same(entries: list[JournalEntry]) -> None:
    """A rewritten journal restores its runtime as the long one did."""
    started = [each for entry in entries for each in ([entry, began(2)] if entry is SET_ASIDE else [entry])]
    story = JournalReplay.of([began(1), *started, TAKEN, of_aside(TAKEN)], LIMIT)
    assert told(story) == told(JournalReplay.of(story.retold(), LIMIT))


@given(st.lists(ENTRIES, max_size=12), st.data())
def test_any_prefix_of_the_bytes_is_an_earlier_state(
    entries: list[JournalEntry], data: st.DataObject
) -> None:
    """Wherever a process is killed: complete entries count, incomplete ones do not."""
    file = JournalFile.create(entries)
    try:
        whole = file.read()
    finally:
        file.close()
    cut = data.draw(st.integers(0, len(whole)))
    kept = list(entries_of(whole[:cut]))
    assert entries[: len(kept)] == kept
    assert (len(kept) == len(entries)) == (cut == len(whole))
    told(JournalReplay.of(kept, LIMIT))


def test_a_torn_entry_is_cut_off() -> None:
    """Its file continues after the last complete one."""
    first = JournalFile.create([began(1), READY])
    os.pwrite(first.descriptor, b"\x40\x00\x00\x00torn", first.size)
    kept = os.dup(first.descriptor)
    first.close()
    second = JournalFile(kept)
    second.append(TAKEN)
    assert [began(1), READY, TAKEN] == list(entries_of(second.read()))
    second.close()


def test_a_journal_has_one_writer() -> None:
    """Also after a copy of its descriptor was closed, as one that waited to be sent is; and in the same process."""
    file = JournalFile.create()
    os.close(os.dup(file.descriptor))
    kept = os.dup(file.descriptor)
    with pytest.raises(BlockingIOError):
        JournalFile(kept)
    assert not in_another_process(kept, "JournalFile(descriptor)")
    file.close()
    assert in_another_process(kept, "JournalFile(descriptor)")
    assert in_another_process(kept, "fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)")
    second = JournalFile(kept)  # what an earlier version asks for
    assert not in_another_process(kept, "fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)")
    second.close()


def in_another_process(descriptor: int, code: str) -> bool:
    """Whether it could take the lock."""
    program = f"""
import fcntl, sys
from cenote_worker.record.journal import JournalFile
descriptor = int(sys.argv[1])
try:
    {code}
except BlockingIOError:
    sys.exit(3)
"""
    done = subprocess.run([sys.executable, "-c", program, str(descriptor)], pass_fds=[descriptor])
    assert done.returncode in (0, 3)
    return done.returncode == 0


def test_what_is_told_is_bounded() -> None:
    """A program that prints for ever, and clients that never stop, fill no memory."""
    story = JournalReplay(LIMIT)
    story.follow(began(1))
    for number in range(1, 3000):
        for entry in cell(number, f"k{number}", ["x" * 4000]):
            story.follow(entry)
    story.follow(asked(3000, "flood"))
    for _ in range(1000):
        story.follow(output("y" * 4000))
    retold = sum(entry.ByteSize() for entry in story.retold())
    assert retold < 6 * LIMIT
    assert 3000 == story.steps


def test_keys_without_outcomes_take_one_entry() -> None:
    """Rewriting a journal, and reading it, delays all runtimes of a process; there may be ten thousand keys."""
    story = JournalReplay(LIMIT)
    story.follow(began(1))
    for number in range(1, 3 * MAX_OUTCOMES):
        for entry in cell(number, f"k{number}", []):
            story.follow(entry)
    retold = list(story.retold())
    assert MAX_OUTCOMES < len(retold) < MAX_OUTCOMES + 10
    assert 3 * MAX_OUTCOMES - 1 == len(JournalReplay.of(retold, LIMIT).forgotten) + MAX_OUTCOMES


def test_what_a_cell_has_cleared_is_not_given_again() -> None:
    """Output positions continue: a client may have read the cleared output."""
    story = JournalReplay(LIMIT)
    for entry in (began(1), READY, TAKEN, asked(1), output("gone"), display("a"), display(clears=True),
                  output("kept"), display("b")):  # fmt: skip
        story.follow(entry)
    request = story.current.request
    assert request is not None
    assert (4, [("stdout", "kept")]) == request.printed.after(0)
    frames = [jail_pb2.WorkerFrame.FromString(packet.data) for packet in request.packets]
    assert [["b"]] == [list(frame.display.types) for frame in frames]
