"""Another source for an artifact, or other lines in it: changes of a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cenote.harness.patch_errors import PatchConflictError
from cenote.harness.patch_text import TextEdit, replace_text
from cenote.harness.plan_line import LineStep
from cenote.harness.spans import definition_span, replace_definition
from cenote_worker.in_jail.nearest import nearest
from cenote_worker.trace import file, key_of, kind_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaceArtifact:
    """The file, or the function or class, of this name has this source, where the line has its newest version.

    A file is one that a step of the line has written; else it is a definition.
    """

    name: str
    source: str

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        index, is_file = _newest(line, self.name)
        if is_file:
            return self._rewritten(line, index)
        code = replace_definition(line[index].code, self.name, self.source)
        return _with_code(line, index, code or line[index].code, f"the patch replaces `{self.name}` in it")

    def _rewritten(self, line: Sequence[LineStep], index: int) -> tuple[LineStep, ...]:
        """A step that only writes the file writes this; behind any other one such a step follows."""
        step, code = line[index], writing(self.name, self.source)
        why = f"the patch replaces `{self.name}`"
        if _only_writes(step, self.name):
            return _with_code(line, index, code, why)
        return (*line[: index + 1], LineStep(code=code, change=why), *line[index + 1 :])


@dataclass(frozen=True, kw_only=True, slots=True)
class EditArtifact:
    """Lines are replaced in the newest version of the file, or of the function or class, of this name."""

    name: str
    edits: tuple[TextEdit, ...]

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        index, is_file = _newest(line, self.name)
        step, why = line[index], f"the patch edits `{self.name}` in it"
        if not is_file:
            start, end = definition_span(step.code, self.name) or (0, len(step.code))
            code = step.code[:start] + replace_text(step.code[start:end], self.edits) + step.code[end:]
            return _with_code(line, index, code, why)
        if not _only_writes(step, self.name):
            raise PatchConflictError(
                f"step {step.number} has made `{self.name}`, and its text is not in that step's code; give the whole "
                "new source"
            )
        head = writing(self.name, "")
        return _with_code(line, index, head + replace_text(step.code.removeprefix(head), self.edits), why)


def _newest(line: Sequence[LineStep], name: str) -> tuple[int, bool]:
    """Where the line has the newest version, and whether that is a file. Raises PatchConflictError."""
    written = [index for index, step in enumerate(line) if _writes(step, name)]
    if written:
        return written[-1], True
    defined = [index for index, step in enumerate(line) if _defines(step, name)]
    if defined:
        return defined[-1], False
    near = nearest(name, _written(line))
    hint = f"; the nearest files are {', '.join(near)}" if near else ""
    if any(_reads(step, name) for step in line):
        hint = "; what was put there from outside is put there anew, by `runtime.files`, and then `build()`"
    raise PatchConflictError(f"no step has written a file `{name}` or defines such a name{hint}")


def _writes(step: LineStep, name: str) -> bool:
    """A new step of the same patch has no trace."""
    trace = step.origin.trace if step.origin is not None else None
    return _only_writes(step, name) or (trace is not None and file(name) in trace.writes)


def _reads(step: LineStep, name: str) -> bool:
    trace = step.origin.trace if step.origin is not None else None
    return trace is not None and file(name) in trace.reads


def _only_writes(step: LineStep, name: str) -> bool:
    return step.code.startswith(writing(name, ""))


def _defines(step: LineStep, name: str) -> bool:
    cell = step.origin is None or step.origin.kind == "cell"
    return cell and definition_span(step.code, name) is not None


def _with_code(line: Sequence[LineStep], index: int, code: str, why: str) -> tuple[LineStep, ...]:
    step = line[index]
    if code == step.code:
        return tuple(line)
    return (*line[:index], replace(step, code=code, change=why), *line[index + 1 :])


def _written(line: Sequence[LineStep]) -> set[str]:
    traces = (step.origin.trace for step in line if step.origin is not None)
    return {key_of(each) for trace in traces if trace for each in trace.writes if kind_of(each) == "file"}


def writing(path: str, source: str) -> str:
    """The cell that writes a file of the working directory."""
    return f"%%writefile {path}\n{source}"
