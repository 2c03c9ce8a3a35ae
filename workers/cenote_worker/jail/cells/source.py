"""A cell's source as code that can run: parsed, split before its last expression, known to linecache."""

from __future__ import annotations
import __future__

import ast
import linecache
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType

from cenote_worker.jail.cells.ipython_syntax import split_lines, to_python
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag

_compile = compile  # bound here because every cell pays for the look-up
_known_lines = linecache.cache  # and this because a cell may assign to the module's attribute
_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
CO_COROUTINE = 0x80
_TREE = ast.PyCF_ONLY_AST | _AWAIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Compiled code of one cell. body: all but a last bare expression, which is `last`. statements: of both.

    is_stand_in: it runs instead of a cell that is certain to fail.
    """

    filename: str
    body: CodeType | None
    last: CodeType | None
    statements: tuple[ast.stmt, ...] = ()
    is_stand_in: bool = False

    @property
    def awaits(self) -> bool:
        """Whether an event loop has to run any part."""
        parts = (self.body, self.last)
        return any(part is not None and part.co_flags & CO_COROUTINE for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    lines: list[str]
    rewritten: frozenset[int]

    @property
    def told(self) -> tuple[str, list[int]]:
        return "\n".join(self.lines), sorted(self.rewritten)


class CellCompiler:
    """Compiles cells and keeps the sources of the latest ones.

    `from __future__` imports hold for all later cells, as in any interactive Python. futures: their flags, one set
    per author.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self.futures = 0
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        self.has_forgotten = False
        """Whether there was a cell whose source is no longer kept."""
        # From Python 3.13 on this is the source given with `-c`: how this process was started is not the user's text.
        _known_lines.pop("<string>", None)

    def compile(self, source: str, step: int) -> Cell:
        """Raises any error of the builtin `compile`, about the source as it was written."""
        filename = f"<cell {step}>"
        self._register(filename, source)
        tree, source = self._parse_any(source, filename)
        statements = tuple(tree.body)
        last = self._take_last(tree, source, filename)
        body = _compile(tree, filename, "exec", self.futures | _AWAIT, True) if tree.body else None
        if body is not None:
            self.futures |= body.co_flags & _FUTURES
        return Cell(filename=filename, body=body, last=last, statements=statements)

    def statements(self, source: str) -> Sequence[ast.stmt]:
        """The statements of a cell that may be compiled later; empty if it is not Python."""
        try:
            return self._parse(source, "<cell>").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return ()

    @property
    def newest_size(self) -> int:
        """Characters of the cell that was compiled last."""
        newest = next(reversed(self._sources.values()), None)
        return 0 if newest is None else sum(len(line) + 1 for line in newest.lines)

    @property
    def sources(self) -> dict[str, tuple[str, list[int]]]:
        """The latest cells, as they were written, with the lines that were not Python; oldest first."""
        return {filename: source.told for filename, source in self._sources.items()}

    def told(self, filename: str) -> tuple[str, list[int]] | None:
        """The entry of `sources` for one cell; None for any other name."""
        source = self._sources.get(filename)
        return None if source is None else source.told

    def take_over(self, sources: Mapping[str, tuple[str, list[int]]]) -> None:
        """Adds cells of another process, whose functions may be here. sources: as `sources` gives them."""
        for filename, (source, rewritten) in sources.items():
            self._register(filename, source)
            self._sources[filename] = _Source(
                lines=self._sources[filename].lines, rewritten=frozenset(rewritten)
            )
        self.has_forgotten = self.has_forgotten or len(self._sources) >= self._keep

    def is_cell(self, filename: str) -> bool:
        return filename in self._sources

    def line(self, filename: str, number: int) -> str:
        """A line of a cell as it was written; empty when there is none."""
        source = self._sources.get(filename)
        if source is None or not 0 < number <= len(source.lines):
            return ""
        return source.lines[number - 1]

    def source(self, filename: str) -> str:
        """A cell as it was written; empty for another name, or a cell that is too old."""
        source = self._sources.get(filename)
        return "" if source is None else "\n".join(source.lines)

    def definition(self, function: FunctionType) -> ast.FunctionDef | None:
        """The definition of a function in a cell; None if its source is too old, or not plain Python."""
        code = function.__code__
        try:
            tree = self._parse(self.source(code.co_filename), code.co_filename)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None
        defined = (each for each in tree.body if isinstance(each, ast.FunctionDef))
        made = code.co_name, code.co_firstlineno
        return next((each for each in defined if (each.name, each.lineno) == made), None)

    def is_rewritten(self, filename: str, number: int) -> bool:
        """Whether a line was not Python as written, so that columns of the compiled code mean nothing in it."""
        source = self._sources.get(filename)
        return source is not None and number in source.rewritten

    def _parse_any(self, source: str, filename: str) -> tuple[ast.Module, str]:
        """The tree of Python or of IPython's additions, and the Python source that it belongs to."""
        try:
            return self._parse(source, filename), source
        except SyntaxError:
            python = to_python(source)
            if python == source:
                raise
        self._note_rewritten(filename, python)
        return self._parse(python, filename), python

    def _parse(self, source: str, filename: str) -> ast.Module:
        tree = _compile(source, filename, "exec", _TREE | self.futures, True)
        assert isinstance(tree, ast.Module)
        return tree

    def _take_last(self, tree: ast.Module, source: str, filename: str) -> CodeType | None:
        if not tree.body:
            return None
        last = tree.body[-1]
        if not isinstance(last, ast.Expr) or _is_silenced(last, source):
            return None
        del tree.body[-1]
        flags = self.futures | _AWAIT
        code: CodeType = _compile(ast.Expression(last.value), filename, "eval", flags, True)
        return code

    def _register(self, filename: str, source: str) -> None:
        lines = split_lines(source)
        _known_lines[filename] = (len(source), None, [line + "\n" for line in lines], filename)
        self._sources[filename] = _Source(lines=lines, rewritten=frozenset())
        if len(self._sources) > self._keep:
            oldest, _ = self._sources.popitem(last=False)
            self.has_forgotten = True
            _known_lines.pop(oldest, None)

    def _note_rewritten(self, filename: str, python: str) -> None:
        lines = self._sources[filename].lines
        pairs = zip(lines, split_lines(python), strict=False)
        changed = frozenset(number for number, (old, new) in enumerate(pairs, 1) if old != new)
        self._sources[filename] = _Source(lines=lines, rewritten=changed)


COMPILER = CellCompiler.compile.__code__.co_filename
"""The file name in tracebacks of compiler errors."""


def _is_silenced(last: ast.Expr, source: str) -> bool:
    """Whether a `;` follows the last expression."""
    if ";" not in source:
        return False
    assert last.end_lineno is not None
    assert last.end_col_offset is not None
    line = split_lines(source)[last.end_lineno - 1]
    return line.encode("utf-8", "surrogatepass")[last.end_col_offset :].lstrip().startswith(b";")
