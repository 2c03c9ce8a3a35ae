"""Shorter forms of a conversation. Each function takes entries and gives entries; nothing else happens."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from cenote.agent import prompts
from cenote.agent.history import Entry, Kind, last_task

_WORTH_IT = 400
"""Characters from which an output is worth putting away: the pointer costs a fifth of that."""

_NAMES = {Kind.TASK: "User", Kind.ANSWER: "Agent", Kind.CODE: "Agent", Kind.OUTPUT: "Output", Kind.NOTE: "Note",
          Kind.SUMMARY: "Before"}  # fmt: skip


def split(entries: tuple[Entry, ...], keep: int) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """What is old, and what stays: the current task and the last `keep` steps."""
    start = _start_of_recent(entries, keep)
    task = last_task(entries)
    if not 0 <= task < start:
        return entries[:start], entries[start:]
    return entries[:task] + entries[task + 1 : start], (entries[task], *entries[start:])


def long_outputs(entries: tuple[Entry, ...], keep: int) -> tuple[Entry, ...]:
    """Outputs that are worth putting away, those of the last `keep` steps excepted."""
    old = entries[: _start_of_recent(entries, keep)]
    return tuple(entry for entry in old if entry.kind is Kind.OUTPUT and len(entry.text) > _WORTH_IT)


def pointer(entry: Entry, handle: str) -> Entry:
    """An output that was put away: how to read it, and in short what it was."""
    text = prompts.OUTPUT_POINTER.format(size=len(entry.text), handle=handle)
    return replace(entry, text=f"{text}\n{entry.brief}" if entry.brief else text)


def condensed(entries: tuple[Entry, ...], keep: int) -> tuple[Entry, ...]:
    """Each step but the last `keep` as one line."""
    start = _start_of_recent(entries, keep)
    pairs = {
        i
        for i, (a, b) in enumerate(pairwise(entries[:start]))
        if (a.kind, b.kind) == (Kind.CODE, Kind.OUTPUT)
    }
    shorter = []
    for index, entry in enumerate(entries[:start]):
        if index in pairs:
            line = prompts.STEP_LINE.format(code=entry.brief, outcome=entries[index + 1].brief)
            shorter.append(Entry(kind=Kind.NOTE, text=line))
        elif index - 1 not in pairs:
            shorter.append(entry)
    return (*shorter, *entries[start:])


def transcript(entries: tuple[Entry, ...]) -> str:
    """The entries as one text."""
    return "\n\n".join(f"{_NAMES[entry.kind]}: {entry.text}" for entry in entries)


def without_middle(text: str, limit: int) -> str:
    """About `limit` characters of a text, half of them from its end."""
    return f"{text[: limit // 2]}\n[... middle left out ...]\n{text[-limit // 2 :]}"


def summary(text: str, names: str) -> Entry:
    return Entry(kind=Kind.SUMMARY, text=prompts.SUMMARY.format(summary=text, names=names))


def dropped(names: str) -> Entry:
    return Entry(kind=Kind.SUMMARY, text=prompts.DROPPED.format(names=names))


def _start_of_recent(entries: tuple[Entry, ...], keep: int) -> int:
    """Index of the first entry of the last `keep` steps, those before the previous task not counted."""
    if keep == 0:
        return len(entries)
    steps = [i for i, entry in enumerate(entries) if entry.kind is Kind.CODE]
    tasks = [0, 0, *(i for i, entry in enumerate(entries) if entry.kind is Kind.TASK)]
    return max(tasks[-2], steps[-keep]) if keep <= len(steps) else tasks[-1]
