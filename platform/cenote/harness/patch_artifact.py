"""Another source for an artifact: a change of a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from cenote.harness.patch_errors import PatchConflictError
from cenote.harness.plan_line import LineStep
from cenote.harness.spans import definition_span, replace_definition
from cenote_worker.trace import file, key_of, kind_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaceArtifact:
    """The file, or the function or class, of this name has this source, where the line has its newest version.

    A file is one that a step of the line has written; else it is a definition.
    """

    name: str
    source: str

    def on(self, line: Sequence[LineStep]) -> tuple[LineStep, ...]:
        written = [index for index, step in enumerate(line) if self._writes(step)]
        if written:
            return self._rewritten(line, written[-1])
        defined = [index for index, step in enumerate(line) if self._defines(step)]
        if not defined:
            near = get_close_matches(self.name, [*_written(line)])
            hint = f"; the nearest files are {', '.join(near)}" if near else ""
            raise PatchConflictError(f"no step has written a file `{self.name}` or defines such a name{hint}")
        return self._redefined(line, defined[-1])

    def _writes(self, step: LineStep) -> bool:
        trace = step.origin.trace if step.origin is not None else None
        return trace is not None and file(self.name) in trace.writes

    def _defines(self, step: LineStep) -> bool:
        cell = step.origin is None or step.origin.kind == "cell"
        return cell and definition_span(step.code, self.name) is not None

    def _rewritten(self, line: Sequence[LineStep], index: int) -> tuple[LineStep, ...]:
        """A step that only writes the file writes this; behind any other one such a step follows."""
        step, code = line[index], writing(self.name, self.source)
        if step.code == code:
            return tuple(line)
        why = f"the patch replaces `{self.name}`"
        if step.code.startswith(writing(self.name, "")):
            return (*line[:index], replace(step, code=code, change=why), *line[index + 1 :])
        return (*line[: index + 1], LineStep(code=code, change=why), *line[index + 1 :])

    def _redefined(self, line: Sequence[LineStep], index: int) -> tuple[LineStep, ...]:
        step = line[index]
        code = replace_definition(step.code, self.name, self.source)
        if code is None or code == step.code:
            return tuple(line)
        why = f"the patch replaces `{self.name}` in it"
        return (*line[:index], replace(step, code=code, change=why), *line[index + 1 :])


def _written(line: Sequence[LineStep]) -> set[str]:
    traces = (step.origin.trace for step in line if step.origin is not None)
    return {key_of(each) for trace in traces if trace for each in trace.writes if kind_of(each) == "file"}


def writing(path: str, source: str) -> str:
    """The cell that writes a file of the working directory."""
    return f"%%writefile {path}\n{source}"
