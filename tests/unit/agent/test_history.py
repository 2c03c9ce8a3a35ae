"""The conversation's parts: roles, joining, trimming."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cenote.agent.vocabulary.conversation import (
    ConversationEntry,
    Kind,
    from_messages,
    keep_last,
    last_task,
    to_messages,
)
from cenote.models.messages import Message

KINDS = st.sampled_from([Kind.TASK, Kind.ANSWER, Kind.CODE, Kind.OUTPUT, Kind.NOTE])
ENTRIES = st.lists(KINDS, max_size=12).map(
    lambda kinds: tuple(ConversationEntry(kind=k, text=str(i)) for i, k in enumerate(kinds))
)


def test_neighbours_of_one_role_become_one_message() -> None:
    """Some providers require alternating roles."""
    entries = [
        ConversationEntry(kind=Kind.OUTPUT, text="a"),
        ConversationEntry(kind=Kind.TASK, text="b"),
        ConversationEntry(kind=Kind.CODE, text="c"),
    ]
    assert (Message.system("s"), Message.user("a\n\nb"), Message.assistant("c")) == to_messages("s", entries)


def test_system_messages_of_an_earlier_conversation_are_left_out() -> None:
    """`agent.messages` of one agent can be passed to another."""
    messages = [Message.system("old"), Message.user("q"), Message.assistant("a")]
    assert [(Kind.TASK, "q"), (Kind.ANSWER, "a")] == [(e.kind, e.text) for e in from_messages(messages)]


@given(ENTRIES, st.integers(3, 12))
def test_trimming_keeps_the_end_and_the_task(entries: tuple[ConversationEntry, ...], count: int) -> None:
    """At most `count` entries, in order, with the last one and the current task, and no output without its code."""
    kept = keep_last(entries, count)
    assert len(kept) <= count
    assert [e for e in entries if e in kept] == list(kept)
    if entries:
        assert entries[-1] == kept[-1]
    task = last_task(entries)
    assert task < 0 or entries[task] in kept


@given(ENTRIES)
def test_roles_alternate(entries: tuple[ConversationEntry, ...]) -> None:
    """For any parts."""
    roles = [message.role for message in to_messages("system", entries)]
    assert all(a != b for a, b in pairwise(roles))
