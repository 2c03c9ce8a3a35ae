"""How far the plans of a team are; steps that were done before a restart are not done again.

References have names that outlast this process's objects: a stored plan holds these instead of values.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cenote.runtime import ObjectReference
from cenote.team.state import ReferenceState, StepState


class ReferenceStore(Protocol):
    """Gives references ids and finds them again. Called from any thread."""

    def keep(self, reference: ObjectReference) -> str:
        """An id, the same one each time for the same reference."""

    def find(self, reference_id: str) -> ObjectReference | None:
        """The reference, or None when it is not there any more."""


class ReferencesInUse:
    """The references that other code in this process still holds; it prolongs no value's life."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: weakref.WeakKeyDictionary[ObjectReference, str] = weakref.WeakKeyDictionary()
        self._references: weakref.WeakValueDictionary[str, ObjectReference] = weakref.WeakValueDictionary()

    def keep(self, reference: ObjectReference) -> str:
        with self._lock:
            reference_id = self._ids.get(reference)
            if reference_id is None:
                reference_id = secrets.token_hex(8)
                self._ids[reference] = reference_id
                self._references[reference_id] = reference
            return reference_id

    def find(self, reference_id: str) -> ObjectReference | None:
        with self._lock:
            return self._references.get(reference_id)


MAX_DIGESTED = 2**18
"""Characters of a plain value that it is worth to compare by; larger ones are better given as references."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step gave.

    agent: who did it. answer: its last words. reference: to what it was to make; None for a step without `gives`.
    """

    agent: str
    answer: str
    reference: ObjectReference | None = None


class TeamProgress:
    """The record of all steps, in the order in which they began. on_change: called after each change.

    Belongs to the event loop that runs the plans.
    """

    def __init__(
        self, store: ReferenceStore, steps: Iterable[StepState], on_change: Callable[[], None]
    ) -> None:
        self.store = store
        self._steps = {step.key: step for step in steps}
        self._on_change = on_change
        self._runs = 0

    @property
    def steps(self) -> tuple[StepState, ...]:
        return tuple(self._steps.values())

    def run_name(self) -> str:
        """A name for a run that was given none: by its place among those, so that a restarted program finds it."""
        self._runs += 1
        return f"run-{self._runs}"

    def begin(self, step: StepState) -> StepResult | None:
        """A step begins; its result if the same one is done already and what it made is still there."""
        before = self._steps.get(step.key)
        if before is not None and replace(before, output=None, answer="", status="running") == step:
            result = self._result(before)
            if result is not None:
                return result
        self._note(step)
        return None

    def finish(self, key: str, result: StepResult) -> None:
        output = None if result.reference is None else described(result.reference, self.store)
        self._note(replace(self._steps[key], status="done", output=output, answer=result.answer))

    def fail(self, key: str, error: BaseException) -> None:
        self._note(replace(self._steps[key], status="failed", error=f"{type(error).__name__}: {error}"))

    def identities(self, values: Sequence[object]) -> tuple[str, ...]:
        """What a step's inputs are known by."""
        return tuple(
            self.store.keep(value) if isinstance(value, ObjectReference) else _digest(value)
            for value in values
        )

    def _result(self, step: StepState) -> StepResult | None:
        if step.status != "done" or "" in step.inputs:
            return None
        reference = None if step.output is None else self.store.find(step.output.id)
        if step.output is not None and reference is None:
            return None
        return StepResult(agent=step.agent, answer=step.answer, reference=reference)

    def _note(self, step: StepState) -> None:
        self._steps[step.key] = step
        self._on_change()


def described(reference: ObjectReference, store: ReferenceStore) -> ReferenceState:
    """A reference as plain data."""
    info = reference.info
    return ReferenceState(
        id=store.keep(reference),
        type=info.type,
        shape=info.shape,
        size=info.size,
        description=info.description,
    )


def _digest(value: object) -> str:
    """The digest of a value that is plain data; empty for others: whether they are equal is not known."""
    try:
        text = _json(value)
        # JSON takes tuples for lists, and numbers that are keys for strings.
        is_plain = json.loads(text) == value
    except (TypeError, ValueError, RecursionError):
        return ""
    return "" if not is_plain else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _json(value: object) -> str:
    """Raises ValueError for a value of more than MAX_DIGESTED characters, before much more of it was written."""
    pieces: list[str] = []
    for piece in json.JSONEncoder(sort_keys=True, allow_nan=False).iterencode(value):
        pieces.append(piece)
        if len(pieces) > MAX_DIGESTED:
            break
    text = "".join(pieces)
    if len(text) > MAX_DIGESTED:
        raise ValueError("too long to be compared")
    return text
