"""IPython's additions to the language, as plain Python.

Text in, text out. Code that parses as Python is returned unchanged, so a `%` at the start of a line of a string is
never touched. Security rules check the result, which is also what runs: code in `%time` and `%%timeit` stays code,
only shell commands and files' contents become strings.
"""

from __future__ import annotations

import ast
import re
import warnings

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

MAGIC = "_magic_"
"""The name under which rewritten code finds the object that does the work."""

_MOST_LINES = 200
_MOST_PARSED = 1_000_000
"""Lines rewritten in one cell, and characters parsed for it: each line costs a parse of the whole cell."""

_MAYBE = re.compile(r"^[ \t]*(?:[%!?]|[\w.]+\?)|=[ \t]*[!%]", re.MULTILINE)
_CELL_MAGIC = re.compile(r"%%(\w++!?)[ \t]*+(.*)")
_LINE_MAGIC = re.compile(r"([ \t]*)%(\w++)[ \t]*+(.*)")
_SHELL = re.compile(r"([ \t]*)!!?(.*)")
_ASSIGNMENT = re.compile(r"([\w, \t.\[\]'\"]+=[ \t]*)([!%])(.*)")
_QUESTION = re.compile(r"([ \t]*)(\?{0,2})([A-Za-z_][\w.]*)(\?{0,2})[ \t]*")
_OPTIONS = re.compile(r"(?:-(?:[cotq]+|[cotq]*[nprv][ \t]*\d{1,9})[ \t]+)*(?:--[ \t]+)?")
"""IPython's options of `%timeit`. A number may follow its letter with or without a blank: `-n1 -r 3`."""

_KEEPS_BODY = {"time", "capture"}
"""Cell magics whose cell stays code as it is: they start something that the end of the cell ends."""

_WRITES_BODY = {"file", "writefile"}
_NAME_IN_BRACES = re.compile(r"\{\w+\}")
"""Anything else in braces is an expression, which may do anything."""


def to_python(code: str) -> str:
    """The same code with magics, `!commands` and `name?` written as calls; line numbers stay. Code that is indented
    as a whole, such as from within a function, loses the indentation, as in IPython.

    Code that is still invalid is returned with what could be rewritten, so that the compiler's error is about the
    line that is really wrong. Never raises.
    """
    if code[:1].isspace():
        code = _unindented(code)
    if not _MAYBE.search(code):
        return code
    lines = split_lines(code)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each parse would repeat the compiler's warnings
        for _ in range(min(_MOST_LINES, 1 + _MOST_PARSED // len(code))):
            number = _failing_line(lines)
            if number is None or not _rewrite(lines, number):
                break
    return "\n".join(lines)


def _unindented(code: str) -> str:
    lines = split_lines(code)
    filled = [line for line in lines if line.strip()]
    margin = filled[0][: len(filled[0]) - len(filled[0].lstrip(" \t"))] if filled else ""
    if not margin or not all(line.startswith(margin) for line in filled):
        return code
    return "\n".join(line.removeprefix(margin) for line in lines)


def without_mark(code: str) -> str:
    """The code without a leading byte-order mark, as Python reads a file from an editor on Windows."""
    return code.removeprefix("\ufeff")


def split_lines(source: str) -> list[str]:
    """Lines as the compiler counts them: `str.splitlines` also splits at form feeds and other characters."""
    if "\r" in source:
        source = source.replace("\r\n", "\n").replace("\r", "\n")
    return source.split("\n")


def _failing_line(lines: list[str]) -> int | None:
    """Index of the line that is not Python; None when there is none, or it is unknown."""
    try:
        _parse("\n".join(lines))
    except SyntaxError as error:
        return None if error.lineno is None or error.lineno > len(lines) else max(error.lineno - 1, 0)
    except (ValueError, RecursionError, MemoryError, OverflowError):
        return None
    return None


def _parse(source: str) -> ast.AST:
    tree = compile(source, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
    assert isinstance(tree, ast.AST)
    return tree


def _rewrite(lines: list[str], number: int) -> bool:
    """Rewrites the cell magic that the cell begins with, else the failing line. Returns whether it did."""
    first = _first_code(lines)
    if first <= number and (cell := _CELL_MAGIC.fullmatch(lines[first])):
        _rewrite_cell(lines, first, cell[1], cell[2].strip())
        return True
    _join_continued(lines, number)
    python = _line_to_python(lines[number])
    if python is None:
        return False
    lines[number] = python
    return True


def _first_code(lines: list[str]) -> int:
    for index, line in enumerate(lines):
        if line.strip() and not line.lstrip().startswith("#"):
            return index
    return 0


def _join_continued(lines: list[str], number: int) -> None:
    """Joins lines that continue a command after a backslash to its first line."""
    if not lines[number].lstrip().startswith(("!", "%")):
        return
    following = number
    while lines[number].endswith("\\") and following + 1 < len(lines):
        following += 1
        lines[number] = lines[number][:-1] + lines[following].lstrip()
        lines[following] = ""


# -- cells ------------------------------------------------------------------------------------------------


def _rewrite_cell(lines: list[str], first: int, name: str, arguments: str) -> None:
    body = lines[first + 1 :]
    if name in _KEEPS_BODY:
        lines[first] = f"{MAGIC}.{name}_cell({arguments!r})"
    elif name == "timeit" and (timed := _timed_cell(arguments, body)) is not None:
        lines[first:] = timed
    else:
        text = "\n".join(body)
        # A name of its own, since the effects of this magic are known, see code/unbounded_effects.py.
        known = name in _WRITES_BODY and "{" not in _NAME_IN_BRACES.sub("", arguments)
        called = f"write_file({arguments!r}" if known else f"cell({name!r}, {arguments!r}"
        lines[first] = f"{MAGIC}.{called}, {text!r})"
        lines[first + 1 :] = [""] * len(body)


def _timed_cell(arguments: str, body: list[str]) -> list[str] | None:
    """None for what is no `%%timeit`: only set-up by expressions and plain assignments fits on a line."""
    code, options = _code_of(arguments + " ")
    setup, indented = _as_arguments(code.strip()), _indented(body)
    if setup is None or indented is None:
        return None
    return [f"for _ in {MAGIC}.repeat({', '.join([repr(options), *setup])}):", *indented]


def _as_arguments(code: str) -> list[str] | None:
    """Statements as expressions that do the same."""
    try:
        tree = _parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None
    found = []
    for statement in tree.body if isinstance(tree, ast.Module) else ():
        match statement:
            case ast.Expr(value=value):
                found.append(f"({ast.unparse(value)})")
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.append(f"({name} := ({ast.unparse(value)}))")
            case _:
                return None
    return found


def _indented(body: list[str]) -> list[str] | None:
    """The body one level deeper, lines that begin inside a string left alone; None if it is not Python yet."""
    try:
        tree = _parse(to_python("\n".join(body)))
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and node.end_lineno is not None:
            inside.update(range(node.lineno, node.end_lineno))
    if not isinstance(tree, ast.Module) or not tree.body:
        return None
    return [line if index in inside or not line else " " + line for index, line in enumerate(body)]


# -- lines ------------------------------------------------------------------------------------------------


def _line_to_python(line: str) -> str | None:
    if match := _SHELL.fullmatch(line):
        return f"{match[1]}{MAGIC}.shell({match[2].strip()!r})"
    if match := _LINE_MAGIC.fullmatch(line):
        return match[1] + _line_magic(match[2], match[3].strip())
    if match := _QUESTION.fullmatch(line):
        return _question(match[1], match[3], match[2] + match[4])
    if match := _ASSIGNMENT.fullmatch(line):
        return _assigned(match[1], match[2], match[3].strip())
    return None


def _question(indent: str, name: str, marks: str) -> str | None:
    if not marks or name.endswith(".") or ".." in name:
        return None
    return f"{indent}{MAGIC}.inspect({name}, {name!r}, {len(marks) > 1})"


def _assigned(target: str, mark: str, rest: str) -> str:
    if mark == "!":
        return f"{target}{MAGIC}.shell_lines({rest!r})"
    name, _, arguments = rest.partition(" ")
    if name != "timeit" or not (code := _code_of(arguments.strip())[0]):
        return target + _line_magic(name, arguments.strip())
    options = _code_of(arguments.strip())[1]
    if "await" not in code and _is_expression(code):
        return f"{target}{MAGIC}.repeated({options!r}, lambda: ({code}))"
    return f"for {target.rpartition('=')[0].strip()} in {MAGIC}.repeat({options!r}): {code}"


def _line_magic(name: str, arguments: str) -> str:
    code, options = _code_of(arguments) if name in ("time", "timeit") else ("", "")
    if not code:
        return f"{MAGIC}.line({name!r}, {arguments!r})"
    if name == "timeit":
        return f"for _ in {MAGIC}.repeat({options!r}): {code}"
    if "await" not in code and _is_expression(code):
        return f"{MAGIC}.timed(lambda: ({code}))"
    return f"with {MAGIC}.timing(): {code}"


def _code_of(arguments: str) -> tuple[str, str]:
    """The code after the options of `%timeit -n 10 -r 3 code`, and the options."""
    options = _OPTIONS.match(arguments)
    cut = options.end() if options else 0
    return arguments[cut:], arguments[:cut].strip()


def _is_expression(code: str) -> bool:
    try:
        compile(code, "<cell>", "eval", ast.PyCF_ONLY_AST, True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
