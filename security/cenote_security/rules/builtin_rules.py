"""The rules that come with Cenote: about modules, functions, attributes, IPython's magics, installs, and the text.

All but the last judge what a reading reports, whatever the code calls it. What to do instead of the usual things
that they do not allow stands in two tables; a rule's own `remedy` goes first.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping

from cenote_security.errors import UsageError
from cenote_security.rules.findings import SecurityViolation, Use, WatchedNames
from cenote_security.rules.reading.abstract_values import BUILTINS
from cenote_security.rules.reading.known_names import PASSED_THROUGH, canonical, is_within, names
from cenote_security.rules.rule import Context, SecurityRule, UseRule


def names_of(given: Iterable[str], example: str) -> frozenset[str]:
    """The names; a single one may stand without a list. Raises UsageError, with the example, for what is no name.

    A rule that took anything else would match nothing, silently.
    """
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"a rule takes names, such as {example}, not {name!r:.100}")
    return frozenset(names)


NO_NETWORK = "there is no network here: use an injected function that fetches it, or say what you need"

MODULES: Mapping[str, str] = {
    "ctypes": "use numpy, or an injected function",
    "importlib": "write a plain import statement",
    "marshal": "use json or parquet",
    "os": "use pathlib for paths and the injected functions for everything else",
    "pickle": "use json, parquet or the variables that are in the namespace already",
    "requests": NO_NETWORK,
    "socket": NO_NETWORK,
    "subprocess": "do it in Python, or use an injected function",
    "urllib": NO_NETWORK,
}

FUNCTIONS: Mapping[str, str] = {
    "builtins.__import__": "write a plain import statement",
    "builtins.breakpoint": "print what you want to see",
    "builtins.compile": "write the code in the cell itself",
    "builtins.eval": "write the expression itself, or use ast.literal_eval for data",
    "builtins.exec": "write the code in the cell itself",
    "builtins.exit": "end the code there, or put the rest under an if",
    "builtins.globals": "use the variable by its name, or keep values in a dict of your own",
    "builtins.input": "ask the user in your answer",
    "builtins.locals": "use the variable by its name, or keep values in a dict of your own",
    "builtins.open": "use the injected functions and the variables that are in the namespace already",
    "builtins.quit": "end the code there, or put the rest under an if",
    "builtins.vars": "name the attributes that you need",
    "importlib.import_module": "write a plain import statement",
    "os._exit": "end the code there, or put the rest under an if",
    "os.popen": "do it in Python, or use an injected function",
    "os.system": "do it in Python, or use an injected function",
    "sys.exit": "end the code there, or put the rest under an if",
}


UNREADABLE = "which module is imported cannot be told from the code"

_EXAMPLE = '["os", "socket"]'


class ImportRule(UseRule):
    """Forbids modules with all that is in them: `os` also means `os.path`, `posix`, and `shutil.os`.

    By any road: `import`, `from`, `__import__`, `importlib`, `sys.modules`, attributes of other modules.
    dynamic: whether a dynamic import whose module is not known is let through. remedy: what to do instead.
    """

    def __init__(
        self, forbidden_modules: Iterable[str], *, dynamic: bool = False, remedy: str | None = None
    ) -> None:
        self.forbidden_modules = names_of(forbidden_modules, _EXAMPLE)
        self._refuses_unreadable = bool(self.forbidden_modules) and not dynamic
        super().__init__(WatchedNames(modules=self.forbidden_modules), remedy)

    def __repr__(self) -> str:
        return f"{self.name}({sorted(self.forbidden_modules)})"

    def judge(self, use: Use) -> str | None:
        if use.kind == "unreadable module":
            return UNREADABLE if self._refuses_unreadable else None
        if use.kind == "module" and self._forbidden(use.name):
            return f"module {use.name} is not allowed here"
        return None

    def _forbidden(self, module: str) -> bool:
        names = {module, canonical(module)}
        return any(is_within(name, forbidden) for forbidden in self.forbidden_modules for name in names)

    def advice(self, use: Use) -> str:
        if use.kind == "unreadable module":
            return self.remedy or "write a plain import statement"
        known = MODULES.get(canonical(use.name).partition(".")[0])
        return self.remedy or known or self.default_remedy


class AllowedImportsRule(UseRule):
    """Forbids every module that is not in the list or within one that is, and private ones (`numpy._core`)."""

    def __init__(self, allowed_modules: Iterable[str], *, remedy: str | None = None) -> None:
        self.allowed_modules = names_of(allowed_modules, _EXAMPLE)
        watched = frozenset(sys.stdlib_module_names & PASSED_THROUGH)
        super().__init__(WatchedNames(modules=watched - self.allowed_modules), remedy)

    def __repr__(self) -> str:
        return f"{self.name}({sorted(self.allowed_modules)})"

    def judge(self, use: Use) -> str | None:
        if use.kind == "unreadable module":
            return UNREADABLE
        if use.kind != "module":
            return None
        within = [allowed for allowed in self.allowed_modules if is_within(use.name, allowed)]
        if not within:
            return f"module {use.name} is not among those that are allowed here"
        if all("._" in use.name[len(allowed) :] for allowed in within):
            return f"module {use.name} is private to its library"
        return None

    def advice(self, use: Use) -> str:
        known = MODULES.get(canonical(use.name).partition(".")[0])
        return self.remedy or known or self.default_remedy


SAME_FUNCTION: Mapping[str, tuple[str, ...]] = {
    "builtins.__import__": ("importlib.__import__",),
    "builtins.open": ("io.open", "io.open_code", "codecs.open"),
    "builtins.breakpoint": ("sys.breakpointhook",),
}
"""Other names of the same function."""

_GONE = frozenset({"raw_input", "execfile", "file", "reload"})
"""Builtins of former Pythons, whose names are not used for methods."""


class FunctionRule(UseRule):
    """Forbids functions: calling them, and handing them on to be called.

    forbidden_functions: a bare name that is a builtin means that builtin, whatever alias it goes by, and no method:
        with `eval` and `open`, `df.eval(...)` and `door.open()` are fine, and so is a function of that name that the
        code defines itself. Any other bare name means every function and method that is called by it. A dotted name
        (`os.system`, `pandas.read_csv`) means that function. With a keyword, `logging.basicConfig(filename)` or
        `from_pretrained(trust_remote_code)`, it means calls that are given it, other than False and None.
    description: why, for the message. remedy: what to do instead.
    """

    def __init__(
        self, forbidden_functions: Iterable[str], description: str | None = None, *, remedy: str | None = None
    ) -> None:
        self.forbidden_functions = names = names_of(forbidden_functions, '["eval", "os.system"]')
        self.description = description
        self._functions = frozenset(_expanded(names))
        self._exported = {
            (root, name)
            for root, _, name in (function.partition(".") for function in self._functions)
            if root != "builtins"
        }
        self._methods = frozenset(name for name in names if "." not in name and name not in BUILTINS) - _GONE
        super().__init__(WatchedNames(functions=self._functions, methods=self._methods), remedy)

    def __repr__(self) -> str:
        return f"{self.name}({sorted(self.forbidden_functions)})"

    def judge(self, use: Use) -> str | None:
        if use.kind == "unreadable member" and self._may_be_member_of(use.name):
            return f"which member of {use.name} is used cannot be told from the code{self._why}"
        if use.kind == "method" and use.name in self._methods:
            return f"function {use.name} is not allowed here{self._why}"
        if use.kind == "function" and self._forbidden(use.name):
            return f"function {use.name.removeprefix('builtins.')} is not allowed here{self._why}"
        return None

    @property
    def _why(self) -> str:
        return f" ({self.description})" if self.description else ""

    def _may_be_member_of(self, module: str) -> bool:
        return bool(module) and any(name.rpartition(".")[0] == module for name in self._functions)

    def _forbidden(self, path: str) -> bool:
        if path.rpartition(".")[2] in self._methods or path in self._functions:
            return True
        if "(" in path:
            return path.replace("()", "") in self._functions
        return self._exported_again(path)

    def _exported_again(self, path: str) -> bool:
        """Whether a module deeper in its package has the function, too: `pandas.io.api.read_csv`."""
        root, *between = path.split(".")
        name = between.pop() if between else ""
        return (root, name) in self._exported and all(part.islower() for part in between)

    def advice(self, use: Use) -> str:
        return self.remedy or FUNCTIONS.get(use.name) or self.default_remedy


def _expanded(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        known = BUILTINS.get(name, f"builtins.{name}" if name in _GONE else canonical(name))
        if "." in known or name in BUILTINS:
            yield known
            yield from SAME_FUNCTION.get(known, ())


class AttributeRule(UseRule):
    """Forbids reading, writing or deleting attributes of these names, of whatever object.

    By any road: `x.name`, `getattr` and its kin, class patterns, format strings, `operator.attrgetter`. A string that
    spells a forbidden dunder name counts too, unless it is only compared, printed or looked up.
    """

    default_remedy = "use the public methods of the object"

    def __init__(
        self,
        forbidden_attributes: Iterable[str],
        description: str | None = None,
        *,
        remedy: str | None = None,
    ) -> None:
        self.forbidden_attributes = names_of(forbidden_attributes, '["__globals__", "password"]')
        self.description = description
        super().__init__(WatchedNames(attributes=self.forbidden_attributes), remedy)

    def __repr__(self) -> str:
        return f"{self.name}({sorted(self.forbidden_attributes)})"

    def judge(self, use: Use) -> str | None:
        if use.kind != "attribute" or use.name not in self.forbidden_attributes:
            return None
        why = f" ({self.description})" if self.description else ""
        return f"attribute {use.name} is not allowed here{why}"


class HiddenAttributeRule(UseRule):
    """Forbids dunder attributes other than the allowed ones, and private members of modules (`random._os`)."""

    default_remedy = "use the public methods of the object"

    def __init__(self, allowed_attributes: Iterable[str] = (), *, remedy: str | None = None) -> None:
        self.allowed_attributes = names_of(allowed_attributes, '["__len__"]')
        super().__init__(WatchedNames(hidden=True), remedy)

    def judge(self, use: Use) -> str | None:
        if use.kind != "attribute" or use.name in self.allowed_attributes:
            return None
        if use.name.startswith("__") and use.name.endswith("__"):
            return f"attribute {use.name} is not allowed here"
        if use.owner and use.name.startswith("_"):
            return f"{use.name} is private to module {use.owner}"
        return None


class DynamicAttributeRule(UseRule):
    """Forbids `getattr` and its kin where the name of the attribute is not known from the code."""

    default_remedy = "name the attribute in the code, e.g. loop over a literal list of names"

    def __init__(self, *, remedy: str | None = None) -> None:
        super().__init__(WatchedNames(), remedy)

    def judge(self, use: Use) -> str | None:
        if use.kind != "unreadable member":
            return None
        return "which attribute is used cannot be told from the code"


COMPUTING_MAGICS = names(
    """
    %autoawait %autocall %automagic %autoreload %autosave %colors %config %gui %load_ext %lsmagic %matplotlib %pdb
    %pdoc %pinfo %pprint %precision %pylab %reload_ext %reset %reset_selective %time %timeit %unload_ext %who %who_ls
    %whos %xdel %xmode
    %%capture %%latex %%markdown %%time %%timeit
    """
)
"""Magics that start no program and open no file."""

_SHELL = "a shell command"
_CALLED = {
    "_magic_.shell": _SHELL,
    "_magic_.shell_lines": _SHELL,
    "_magic_.write_file": "%%writefile",
    "IPython.get_ipython": "get_ipython()",
    "IPython.core.getipython.get_ipython": "get_ipython()",
}
"""What rewritten cells call, and the object that runs any magic by its name. The other magics stand in the arguments
of a call: a reading reports them by name."""

_RAW = re.compile(r"(?P<shell>!)|(?P<magic>%%?\w+)|(?:[\w.]+(?P<source>\?\?)|(?P<front>\?\?)[\w.]+)$")


class MagicRule(UseRule):
    """Forbids shell commands (`!ls`), the source of objects (`name??`) and every magic that is not allowed.

    allowed_magics: as they are written: `%matplotlib`, `%%time`. By default those that only compute. `name?` shows
        a docstring and is allowed.
    """

    default_remedy = "do it in Python with the variables and functions that are there"

    def __init__(
        self, allowed_magics: Iterable[str] = COMPUTING_MAGICS, *, remedy: str | None = None
    ) -> None:
        self.allowed_magics = names_of(allowed_magics, '["%matplotlib"]')
        super().__init__(WatchedNames(functions=frozenset(_CALLED)), remedy)

    def judge(self, use: Use) -> str | None:
        if use.kind == "magic":
            magic = _SHELL if use.name == "!" else use.name
        elif use.kind == "function" and use.name in _CALLED:
            magic = _CALLED[use.name]
        else:
            return None
        return None if magic in self.allowed_magics else f"{magic} is not allowed here"


def raw_magics(code: str) -> Iterator[Use]:
    """The magics and shell commands of a cell as it was written, which Python cannot parse."""
    for number, line in enumerate(code.split("\n"), start=1):
        text = line.strip()
        found = _RAW.match(text) or _RAW.match(text.partition("=")[2].lstrip())
        if found is not None:
            node = ast.Pass(lineno=number, col_offset=0, end_lineno=number, end_col_offset=len(line.encode()))
            yield Use(kind="magic", name=found[found.lastgroup or 0], node=node)


_INSTALL = re.compile(r"\b(?:pip3?|uv|conda|mamba|apt|apt-get|npm) (?:\S+ ){0,9}?(?:install|add)\b")


class InstallRule(UseRule):
    """Forbids starting `pip install` and its kind in a child process: it could only fail, slowly."""

    default_remedy = "there is no network here: import what is there and do without the rest"

    def __init__(self, *, remedy: str | None = None) -> None:
        super().__init__(WatchedNames(), remedy)

    def judge(self, use: Use) -> str | None:
        if use.kind == "command" and _INSTALL.search(use.name):
            return "packages cannot be installed here"
        return None


MOST_MATCHES = 20
"""Matches of one pattern that are reported in one cell."""

Region = tuple[int, int]


class RegexRule(SecurityRule):
    """Forbids code that a regular expression matches, comments apart.

    Searched with MULTILINE and DOTALL in the source as written and, where that gives nothing, in each statement as
    Python would format it, so that spacing and the kind of quotes make no difference. The pattern is yours, and so
    is its cost: one that backtracks badly holds up the caller, for it is run without a limit on time.
    Raises UsageError (a ValueError) for a pattern that does not compile.
    """

    nodes = (ast.Module,)

    def __init__(self, pattern: str, description: str | None = None, *, remedy: str | None = None) -> None:
        if not isinstance(pattern, str):
            raise UsageError(f"a pattern is a string, not {type(pattern).__name__}")
        self.description = description or f"matches the pattern {pattern}"
        self.remedy = remedy or ""
        try:
            self.pattern = re.compile(pattern, re.MULTILINE | re.DOTALL)
        except re.error as error:
            raise UsageError(f"not a regular expression: {pattern!r}: {error}") from error

    def __repr__(self) -> str:
        return f"{self.name}({self.pattern.pattern!r})"

    def check(self, node: ast.AST) -> list[SecurityViolation]:
        """Search one statement as Python would format it."""
        return [self._found(line=node.lineno)] if isinstance(node, ast.stmt) and self._formatted(node) else []

    def visit(self, node: ast.AST, context: Context) -> list[SecurityViolation]:
        found = list(self._in_source(context.code))
        if found or not isinstance(node, ast.Module):
            return found
        return [self._of_statement(context.code, part) for part in node.body if self._formatted(part)]

    def _in_source(self, code: str) -> Iterator[SecurityViolation]:
        comments: list[Region] | None = None
        for count, match in enumerate(self.pattern.finditer(code)):
            if count >= MOST_MATCHES:
                return
            if comments is None:
                comments = list(_comments(code))
            if not any(start <= match.start() and match.end() <= end for start, end in comments):
                yield self._at(code, match.start(), match.end())

    def _formatted(self, node: ast.stmt) -> bool:
        try:
            return self.pattern.search(ast.unparse(node)) is not None
        except RecursionError:
            return False

    def _of_statement(self, code: str, node: ast.stmt) -> SecurityViolation:
        text = code.split("\n")[node.lineno - 1]
        return self._found(line=node.lineno, end_line=node.lineno, end_column=len(text.rstrip()))

    def _at(self, code: str, start: int, end: int) -> SecurityViolation:
        line, column = _position(code, start)
        end_line, end_column = _position(code, end)
        return self._found(line=line, column=column, end_line=end_line, end_column=end_column)

    def _found(
        self, *, line: int, column: int = 0, end_line: int = 0, end_column: int = 0
    ) -> SecurityViolation:
        return SecurityViolation(
            self.description,
            line=line,
            column=column,
            end_line=end_line,
            end_column=end_column,
        )


def _position(code: str, offset: int) -> tuple[int, int]:
    before = code[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1)


def _comments(code: str) -> Iterable[Region]:
    starts = [0]
    for line in code.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.COMMENT:
                start = starts[token.start[0] - 1] + token.start[1]
                yield start, start + len(token.string)
    except (tokenize.TokenError, SyntaxError):
        return
