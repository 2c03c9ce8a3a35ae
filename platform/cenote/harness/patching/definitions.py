"""Where a definition stands in a cell, to the character, and changes that replace it.

Changes of an artifact are changes of the history: another source for it, or other lines in it, where the line has
its newest version.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cenote.harness.patching.errors import PatchConflictError
from cenote.harness.patching.patched_history import LineStep
from cenote.harness.patching.text_edits import TextEdit, replace_text
from cenote.harness.record.cell_syntax import UnreadCode, parse, parsed
from cenote_worker.execution.trace import file, key_of, kind_of
from cenote_worker.jail.errors.nearest import nearest

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

_LINE_END = re.compile(r"\r\n?|\n")
_MAGICS = (
    (re.compile(r"^(\s*)[%!?]", re.MULTILINE), r"\1#"),
    (re.compile(r"^([ \t]*)[A-Za-z_]([\w.]*\?\??[ \t]*)$", re.MULTILINE), r"\1#\2"),
    (re.compile(r"^([^#\n]*=[ \t]*)[%!].", re.MULTILINE), r"\g<1>0#"),
)
"""Lines of IPython's language, and what to put in their place: of the same length, and nothing for a parser."""


def replace_definition(code: str, name: str, source: str) -> str | None:
    """The code with another definition of the name; None if it defines no such name.

    name: of a function or class, or `Class.method`. The span has decorators, comments inside and after the last line,
    and the comments right above if the new source brings its own. Nothing around it is touched.
    Raises PatchConflictError: defined twice, or the source is not one definition of that name.
    """
    text = _python(code)
    tree = parsed(text)
    found = _single(tree, name) if tree else None
    if tree is None or found is None:
        return None
    start, end = _span(text, found, with_comments=source.lstrip().startswith("#"))
    indent = code[start : len(code) - len(code[start:].lstrip(" \t"))]
    new = _indented(source, name.rpartition(".")[2], indent)
    patched = code[:start] + new + code[end:]
    if parsed(_python(patched)) is None:
        raise PatchConflictError(f"with the new `{name}` the step would be no Python")
    return patched


def definition_span(code: str, name: str) -> tuple[int, int] | None:
    """Offsets of the whole lines that define a name, see `replace_definition`; None if the code defines no such name.

    Raises PatchConflictError: defined twice.
    """
    text = _python(code)
    tree = parsed(text)
    found = _single(tree, name) if tree else None
    if tree is None or found is None:
        return None
    return _span(text, found, with_comments=False)


def _single(tree: ast.Module, name: str) -> Definition | None:
    found = list(_definitions(tree.body, name.split(".")))
    if len(found) > 1:
        lines = ", ".join(str(node.lineno) for node in found)
        raise PatchConflictError(
            f"`{name}` is defined more than once in one step (lines {lines}); edit or replace that step"
        )
    return found[0] if found else None


def _python(code: str) -> str:
    """The code, with each definition where it is, as what can be parsed if anything can."""
    if parsed(code) is None:
        for magic, plain in _MAGICS:
            code = magic.sub(plain, code)
    return code


def _definitions(body: Sequence[ast.stmt], path: list[str]) -> Iterator[Definition]:
    """Definitions at this path of names, also under `if`, `try`, `with` and loops, which have no scope."""
    waiting = [*reversed(body)]
    while waiting:  # no recursion: `elif` goes deeper than that can
        node = waiting.pop()
        if not isinstance(node, Definition):
            waiting += reversed([each for block in _blocks(node) for each in block])
        elif node.name == path[0]:
            yield from [node] if len(path) == 1 else _definitions(node.body, path[1:])


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for _, value in ast.iter_fields(node):
        if isinstance(value, list):
            yield [item for item in value if isinstance(item, ast.stmt)]
            for item in value:
                if isinstance(item, ast.ExceptHandler | ast.match_case):
                    yield item.body


def _span(text: str, node: Definition, *, with_comments: bool) -> tuple[int, int]:
    """Offsets of the whole lines of a definition, without the last line's end.

    By what the parser says alone: to mark the tokens of each node takes the square of how deep they are nested.
    """
    lines = [0, *(found.end() for found in _LINE_END.finditer(text))]
    start = _offset(text, lines[node.lineno - 1], node.col_offset)
    for first in node.decorator_list[:1]:
        start = text.rfind("@", 0, _offset(text, lines[first.lineno - 1], first.col_offset))
    start = text.rfind("\n", 0, start) + 1
    end = _end_of_line(text, lines[(node.end_lineno or node.lineno) - 1])
    column = len(text[start:]) - len(text[start:].lstrip(" \t"))
    while (more := _comment_after(text, end, column)) is not None:
        end = more
    while with_comments and (above := _comment_above(text, start)) is not None:
        start = above
    return start, end


def _offset(text: str, line: int, column: int) -> int:
    """line: where it begins. column: in bytes of UTF-8, which is how `ast` counts."""
    return line + len(text[line : line + column].encode()[:column].decode(errors="replace"))


def _end_of_line(text: str, offset: int) -> int:
    found = text.find("\n", offset)
    return len(text) if found < 0 else found


def _comment_after(text: str, end: int, column: int) -> int | None:
    """The end of the next line, if it is a comment that is indented into the definition."""
    stop = _end_of_line(text, end + 1)
    line = text[end + 1 : stop]
    inside = len(line) - len(line.lstrip(" \t")) > column
    return stop if line.lstrip().startswith("#") and inside else None


def _comment_above(text: str, start: int) -> int | None:
    above = text.rfind("\n", 0, max(start - 1, 0)) + 1
    return above if start and text[above:start].lstrip().startswith("#") else None


def _indented(source: str, name: str, indent: str) -> str:
    """The new source at the indentation of the old; the inside of strings stays as it is."""
    lines = source.strip("\n").rstrip().split("\n")
    own = lines[0][: len(lines[0]) - len(lines[0].lstrip(" \t"))]
    flat = [line.removeprefix(own) for line in lines]
    tree = parsed("\n".join(flat))
    if tree is None:
        raise PatchConflictError(f"the new source of `{name}` is no Python{_why_not(flat)}")
    _check_definition(tree, name)
    if own == indent:
        return "\n".join(lines)
    kept = _lines_in_strings(tree)
    return "\n".join(
        lines[number] if number in kept else indent + line if line.strip() else line
        for number, line in enumerate(flat)
    )


def _why_not(lines: Sequence[str]) -> str:
    try:
        parse("\n".join(lines))
    except SyntaxError as error:
        return f": {error.msg} (line {error.lineno})"
    except (ValueError, UnreadCode) as error:
        return f": {error}"
    return ""


def _check_definition(tree: ast.Module, name: str) -> None:
    if len(tree.body) != 1 or not isinstance(tree.body[0], Definition):
        raise PatchConflictError(f"the new source has to be one definition of `{name}` and nothing else")
    if tree.body[0].name != name:
        raise PatchConflictError(f"the new source defines `{tree.body[0].name}`, not `{name}`")


def _lines_in_strings(tree: ast.Module) -> set[int]:
    """Numbers, from 0, of lines that begin inside a string."""
    return {
        number
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
        for number in range(node.lineno, node.end_lineno or node.lineno)
    }


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
        """A step that only writes the file writes this; after any other one such a step follows."""
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
