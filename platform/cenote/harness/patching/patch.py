"""Targeted changes of a history: as data, with who made them and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import uuid4

from cenote.harness.patching.definitions import (
    EditArtifact,
    ReplaceArtifact,
    definition_span,
    replace_definition,
)
from cenote.harness.patching.errors import PatchConflictError, UnknownStepError
from cenote.harness.patching.patched_history import LineStep, recorded_line
from cenote.harness.patching.reverting import TakeBack
from cenote.harness.patching.text_edits import TextEdit, apply_diff, replace_text
from cenote.harness.record.code_names import bound_names
from cenote_security.errors import UsageError
from cenote_worker.history.step import StepRecord
from cenote_worker.jail.cells.ipython_syntax import without_mark
from cenote_worker.jail.errors.nearest import nearest


class Change(Protocol):
    """What one patch does to a history, from old steps to new ones."""

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        """The patched line. Raises PatchConflictError where it does not fit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaceStep:
    """The step has this code."""

    number: int
    code: str

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        index = _index(line, self.number)
        return _changed(line, index, self.code, "the patch replaces its code")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaceDefinition:
    """The function, method (`Class.method`) or class of this name has this source, in the step that defines it."""

    name: str
    source: str

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        found = {
            index: code
            for index, step in enumerate(line)
            if _is_cell(step) and (code := replace_definition(step.code, self.name, self.source)) is not None
        }
        index = _only(line, tuple(found), self.name)
        return _changed(line, index, found[index], f"the patch replaces `{self.name}` in it")


@dataclass(frozen=True, kw_only=True, slots=True)
class EditStep:
    """The code of the step is changed by a unified diff."""

    number: int
    diff: str

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        index = _index(line, self.number)
        code = apply_diff(line[index].code, self.diff)
        return _changed(line, index, code, "the patch edits its code")


@dataclass(frozen=True, kw_only=True, slots=True)
class EditText:
    """Lines are replaced in the code of a step, or of the function, method or class of a name."""

    target: int | str
    edits: tuple[TextEdit, ...]

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        if isinstance(self.target, int):
            index = _index(line, self.target)
            code = replace_text(line[index].code, self.edits)
            return _changed(line, index, code, "the patch edits its code")
        found = {
            index: span
            for index, step in enumerate(line)
            if _is_cell(step) and (span := definition_span(step.code, self.target)) is not None
        }
        index = _only(line, tuple(found), self.target)
        (start, end), code = found[index], line[index].code
        code = code[:start] + replace_text(code[start:end], self.edits) + code[end:]
        return _changed(line, index, code, f"the patch edits `{self.target}` in it")


@dataclass(frozen=True, kw_only=True, slots=True)
class InsertStep:
    """A new step comes after this one; 0: before all others."""

    after: int
    code: str

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        index = _index(line, self.after) + 1 if self.after else 0
        return (*line[:index], LineStep(code=self.code, change="the patch inserts it"), *line[index:])


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveStep:
    """The step never was."""

    number: int

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        index = _index(line, self.number)
        return (*line[:index], *line[index + 1 :])


@dataclass(frozen=True, kw_only=True, slots=True)
class Patch:
    """Changes of one history, all or none. id: unique. parent: the patch that this one follows or takes back.

    cause: the model call that asked for it, if one did. Those who make one raise UsageError for code that is no text.
    """

    changes: tuple[Change, ...]
    reason: str = ""
    author: str = ""
    parent: str = ""
    cause: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        for said in (self.reason, self.author):
            if not isinstance(said, str):
                raise UsageError(f"reason and author of a patch are texts, not {type(said).__name__}")
        if not self.id:
            object.__setattr__(self, "id", uuid4().hex[:16])

    @classmethod
    def replace_step(cls, number: int, code: str, *, reason: str = "", author: str = "") -> Patch:
        """Gives a step other code."""
        return cls(
            changes=(ReplaceStep(number=_number(number), code=_text(code)),), reason=reason, author=author
        )

    @classmethod
    def replace_function(cls, name: str, source: str, *, reason: str = "", author: str = "") -> Patch:
        """Gives a function, a method (`Class.method`) or a class another definition, wherever it is defined.

        source: the whole definition with its decorators, at any indentation. Everything around it stays as it is.
        """
        return cls(
            changes=(ReplaceDefinition(name=_text(name), source=_text(source)),), reason=reason, author=author
        )

    @classmethod
    def edit(cls, number: int, diff: str, *, reason: str = "", author: str = "") -> Patch:
        """Changes a step's code by a unified diff. Lines may have moved; all else must be as the diff says."""
        return cls(
            changes=(EditStep(number=_number(number), diff=_text(diff)),), reason=reason, author=author
        )

    @classmethod
    def edit_text(
        cls, target: int | str, edits: Sequence[TextEdit], *, reason: str = "", author: str = ""
    ) -> Patch:
        """Replaces whole lines in a step, or in the function, method or class of that name; see `TextEdit`."""
        return cls(
            changes=(EditText(target=_target(target), edits=_edits(edits)),), reason=reason, author=author
        )

    @classmethod
    def insert_step(cls, after: int, code: str, *, reason: str = "", author: str = "") -> Patch:
        """Puts a new step after a step; after=0: before all."""
        return cls(
            changes=(InsertStep(after=_number(after), code=_text(code)),), reason=reason, author=author
        )

    @classmethod
    def remove_step(cls, number: int, *, reason: str = "", author: str = "") -> Patch:
        """Takes a step out of the history."""
        return cls(changes=(RemoveStep(number=_number(number)),), reason=reason, author=author)

    @classmethod
    def replace_artifact(cls, name: str, source: str, *, reason: str = "", author: str = "") -> Patch:
        """Gives a file of the working directory that a step has written, or a function or class, another source."""
        return cls(
            changes=(ReplaceArtifact(name=_text(name), source=_text(source)),), reason=reason, author=author
        )

    @classmethod
    def edit_artifact(
        cls, name: str, edits: Sequence[TextEdit], *, reason: str = "", author: str = ""
    ) -> Patch:
        """Replaces whole lines in such a file or definition, where its newest text is in the code of a step."""
        return cls(
            changes=(EditArtifact(name=_text(name), edits=_edits(edits)),), reason=reason, author=author
        )

    def revert(
        self,
        before: Sequence[StepRecord],
        after: Sequence[StepRecord],
        first: Callable[[int], int],
        *,
        reason: str = "",
        author: str = "",
    ) -> Patch:
        """The patch that takes this one back, and leaves what was done since; see `TakeBack`."""
        return Patch(
            changes=(TakeBack(before=tuple(before), after=tuple(after), first=first),),
            reason=reason or f"takes back patch {self.id}",
            author=author,
            parent=self.id,
        )

    def renumbered(self, present: Callable[[int], int]) -> Patch:
        """The same patch of the same steps, by the numbers that these have now. present: gives them."""
        return replace(self, changes=tuple(_renumbered(change, present) for change in self.changes))

    def applied(self, records: Sequence[StepRecord]) -> tuple[LineStep, ...]:
        """The patched line. Raises PatchConflictError."""
        line = recorded_line(records)
        for change in self.changes:
            line = change.on(line)
        return line


def _renumbered(change: Change, present: Callable[[int], int]) -> Change:
    match change:
        case ReplaceStep() | EditStep() | RemoveStep():
            return replace(change, number=present(change.number))
        case InsertStep():
            return replace(change, after=present(change.after))
        case EditText(target=int(number)):
            return replace(change, target=present(number))
    return change


def _text(given: str) -> str:
    if not isinstance(given, str):
        raise UsageError(f"names and code of a patch are texts, not {type(given).__name__}")
    return without_mark(given)


def _number(given: int) -> int:
    if not isinstance(given, int):
        raise UsageError(f"a patch names a step by its number, not by {given!r:.100}")
    return given


def _target(given: int | str) -> int | str:
    return _text(given) if isinstance(given, str) else _number(given)


def _edits(given: Sequence[TextEdit]) -> tuple[TextEdit, ...]:
    edits = tuple(given) if isinstance(given, Iterable) else (None,)
    if not all(isinstance(edit, TextEdit) and isinstance(edit.search, str) for edit in edits):
        raise UsageError(f"edits is a list of TextEdit(search=..., replacement=...), not {given!r:.100}")
    return tuple(given)


def _index(line: Sequence[LineStep], number: int) -> int:
    for index, step in enumerate(line):
        if number and number in (step.number, step.origin.origin if step.origin else 0):
            return index
    raise UnknownStepError(number)


def _only(line: Sequence[LineStep], found: Sequence[int], name: str) -> int:
    """The one step that defines a name."""
    if not found:
        if bound := [str(step.number) for step in line if _is_cell(step) and name in bound_names(step.code)]:
            raise PatchConflictError(
                f"steps bind `{name}` ({', '.join(bound)}), and none defines it by `def` or `class`; patch the step"
            )
        near = nearest(name, _defined(line))
        hint = f"; the nearest that are defined: {', '.join(near)}" if near else ""
        raise PatchConflictError(f"no step defines `{name}`{hint}")
    if len(found) > 1:
        numbers = ", ".join(str(line[index].number) for index in found)
        raise PatchConflictError(
            f"steps {numbers} define `{name}`; say which one with Patch.replace_step or Patch.edit"
        )
    return found[0]


def _defined(line: Sequence[LineStep]) -> set[str]:
    return {name for step in line if _is_cell(step) for name in bound_names(step.code)}


def _is_cell(step: LineStep) -> bool:
    return step.origin is None or step.origin.kind == "cell"


def _changed(line: Sequence[LineStep], index: int, code: str, change: str) -> tuple[LineStep, ...]:
    step = line[index]
    if not _is_cell(step):
        raise PatchConflictError(
            f"step {step.number} is no cell but an {step.origin.kind if step.origin else ''}"
        )
    if code == step.code:
        return tuple(line)
    return (*line[:index], replace(step, code=code, change=change), *line[index + 1 :])
