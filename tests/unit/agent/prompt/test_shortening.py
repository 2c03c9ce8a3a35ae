"""Shorter forms of a conversation."""

from __future__ import annotations

from cenote.agent.decide import compaction
from cenote.agent.vocabulary.conversation import ConversationEntry, Kind


def entry(kind: Kind, text: str, brief: str = "", cell: int = 0) -> ConversationEntry:
    return ConversationEntry(kind=kind, text=text, brief=brief, cell=cell)


def step(number: int, output: str = "out") -> tuple[ConversationEntry, ConversationEntry]:
    return (
        entry(Kind.CODE, f"code {number}", f"brief code {number}", number),
        entry(Kind.OUTPUT, output, f"brief out {number}", number),
    )


TASK = entry(Kind.TASK, "the task")
OLD_TASK = entry(Kind.TASK, "old task")
ANSWER = entry(Kind.ANSWER, "answer")


def texts(entries: tuple[ConversationEntry, ...]) -> list[str]:
    return [e.text for e in entries]


def test_split_keeps_the_task_and_the_last_steps() -> None:
    """The task stays before the steps that are kept."""
    old, recent = compaction.split((TASK, *step(1), *step(2), *step(3)), keep=1)
    assert ["code 1", "out", "code 2", "out"] == texts(old)
    assert ["the task", "code 3", "out"] == texts(recent)


def test_split_of_a_chat_keeps_the_task() -> None:
    """Without steps everything but the task is old."""
    old, recent = compaction.split((OLD_TASK, ANSWER, TASK), keep=1)
    assert (["old task", "answer"], ["the task"]) == (texts(old), texts(recent))


def test_steps_of_long_ago_are_not_the_last_steps() -> None:
    """Everything before the previous task is old, even if no step followed it."""
    entries = (TASK, *step(1), ANSWER, OLD_TASK, ANSWER, TASK)
    old, recent = compaction.split(entries, keep=1)
    assert ["the task", "code 1", "out", "answer"] == texts(old)
    assert ["old task", "answer", "the task"] == texts(recent)


def test_split_without_steps_to_keep_leaves_the_task() -> None:
    """The last resort."""
    assert ["the task"] == texts(compaction.split((TASK, *step(1)), keep=0)[1])


def test_only_long_outputs_are_put_away() -> None:
    """A pointer must be shorter than the output it refers to."""
    at, over = "x" * 400, "x" * 401
    entries = (TASK, *step(1, at), *step(2, over), *step(3, over))
    assert [2] == [e.cell for e in compaction.long_outputs(entries, keep=1)]
    assert [2, 3] == [e.cell for e in compaction.long_outputs(entries, keep=0)]


def test_a_pointer_names_size_and_handle() -> None:
    """It also describes the output briefly."""
    pointed = compaction.pointer_entry(step(3, "x" * 500)[1], "read_output(3)")
    assert "[output of 500 characters put away; read_output(3) reads it]\nbrief out 3" == pointed.text


def test_condensed_steps_are_one_line_each() -> None:
    """Pairs of code and output; everything else is unchanged."""
    entries = (OLD_TASK, *step(1), ANSWER, TASK, *step(2), *step(3))
    assert [
        "old task",
        "[earlier block: brief code 1 -> brief out 1]",
        "answer",
        "the task",
        "[earlier block: brief code 2 -> brief out 2]",
        "code 3",
        "out",
    ] == texts(compaction.condensed(entries, keep=1))


def test_a_transcript_names_who_spoke() -> None:
    """The transcript is for the model that summarises."""
    assert "User: the task\n\nAgent: code 1\n\nOutput: out" == compaction.transcript((TASK, *step(1)))


def test_without_middle_keeps_both_ends() -> None:
    """Half of the limit each."""
    assert "aa\n[... middle left out ...]\ncc" == compaction.without_middle("aabbbbcc", 4)
