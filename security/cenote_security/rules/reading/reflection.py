"""Functions that reach members and modules by name, make functions from others, or run source text.

Code that stands in a string is read as well: what `exec`, `eval`, `timeit` and `DataFrame.query` are given.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from cenote_security.rules.reading.abstract_values import (
    BUILTINS,
    SOME_FUNCTION,
    Bound,
    Closure,
    Const,
    Getter,
    Items,
    Lookup,
    NameScope,
    Partial,
    Value,
    merge_all,
    options,
    paths,
    strings,
)
from cenote_security.rules.reading.members import access, format_fields, item
from cenote_security.rules.reading.reader import CodeReader


@dataclass(slots=True)
class Arguments:
    """What a call passes. Stars are spread out as far as they are known; an unknown rest is one unknown argument.

    more: whether there are keywords (`**options`) whose names are not known.
    """

    positional: tuple[Value, ...] = ()
    named: Mapping[str, Value] | None = None
    more: bool = False

    def get(self, index: int, name: str = "") -> Value:
        """The argument at the position or of the name, unknown when the call has none."""
        if index < len(self.positional):
            return self.positional[index]
        return self.named.get(name) if self.named and name else None

    def has(self, index: int, name: str = "") -> bool:
        return index < len(self.positional) or bool(self.named and name in self.named)

    def values(self) -> tuple[Value, ...]:
        return (*self.positional, *(self.named or {}).values())


LONGEST_NESTED = 20_000
"""Characters of code in a string that are read."""

DEEPEST_NESTING = 3
"""Strings within strings that are read."""

_AT_NAME = re.compile(r"@\s*([A-Za-z_]\w*)")
_BACKTICKS = re.compile(r"`[^`]*`")
_MARK = "at_sign_"

_PARSING = threading.Lock()
"""Silencing warnings changes the whole process: two threads at it at once could leave them silenced for good."""


def parse(code: str) -> ast.Module | None:
    """The syntax tree, None for what Python cannot parse. Warnings about the code are left to its execution.

    Raises RecursionError or MemoryError for code that is nested too deeply: how deep depends on the caller's stack,
    so that the same code may well compile elsewhere.
    """
    try:
        with _PARSING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError):
        return None


def run_types(reader: CodeReader, node: ast.AST, texts: Iterable[str]) -> None:
    """Read the texts of types, which pydantic and `functools.singledispatch` evaluate. Only a call has an effect."""
    for text in texts:
        if "(" in text:
            run_source(reader, node, text)


def run_source(reader: CodeReader, node: ast.AST, text: str) -> Value:
    """Read the code in a string as if it stood here; the value of a lone expression."""
    tree = _nested(reader, text.strip())
    if tree is None:
        return None
    outer, reader.anchor = reader.anchor, reader.anchor or node
    pending, reader.pending = reader.pending, deque()
    closure = reader.closure
    reader.nesting += 1
    value: Value = None
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        value = reader.visit(tree.body[0].value)
    else:
        reader.branch(tree.body)
    reader.finish()  # its functions are read while the string still stands for what is found in them
    reader.pending, reader.closure = pending, closure
    reader.nesting -= 1
    reader.anchor = outer
    return value


def read_query(reader: CodeReader, node: ast.AST, text: str) -> None:
    """Read a pandas expression: bare names are columns, those with an at sign are the cell's."""
    marked = _AT_NAME.sub(rf"{_MARK}\1", _BACKTICKS.sub("column", text)).strip()
    tree = _nested(reader, marked) if any(sign in text for sign in (".", "@", "__")) else None
    if tree is None:
        return
    names = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)}
    outer = reader.scoped(NameScope("comprehension", reader.scope))
    anchor, reader.anchor = reader.anchor, reader.anchor or node
    for name in names:
        reader.scope.names[name] = _in_query(reader, name)
    reader.branch(tree.body)
    reader.anchor = anchor
    reader.scoped(outer)


def read_formula(reader: CodeReader, node: ast.AST, text: str) -> None:
    """Read a formula of patsy's: bare names are columns, unless they are called or the cell has bound them."""
    tree = _nested(reader, text.replace("~", ",").strip())
    if tree is None:
        return
    called = {part.func for part in ast.walk(tree) if isinstance(part, ast.Call)}
    outer = reader.scoped(NameScope("comprehension", reader.scope))
    anchor, reader.anchor = reader.anchor, reader.anchor or node
    for part in ast.walk(tree):
        if isinstance(part, ast.Name) and part not in called and reader.lookup(part.id) is Lookup.UNBOUND:
            reader.scope.names[part.id] = None
    reader.branch(tree.body)
    reader.anchor = anchor
    reader.scoped(outer)


def _in_query(reader: CodeReader, name: str) -> Value:
    if not name.startswith((_MARK, "__")):
        return None
    meant = name.removeprefix(_MARK)
    found = reader.lookup(meant)
    return BUILTINS.get(meant) if found is Lookup.UNBOUND else found


def _nested(reader: CodeReader, text: str) -> ast.Module | None:
    if len(text) > LONGEST_NESTED or reader.nesting >= DEEPEST_NESTING:
        return None
    return parse(text)


MOST_WORDS = 100
"""Words of a command line that rules see."""

Special = Callable[[CodeReader, ast.AST, Arguments], Value]


def _getattr(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    owner, name = arguments.get(0), arguments.get(1)
    found: list[Value] = []
    for option in options(name):
        if type(option) is Const:
            if type(option.value) is str:
                found.append(_chain(reader, node, owner, option.value))
        else:
            known = next(paths(owner), "")
            reader.report("unreadable member", known, node)
    return merge_all(tuple(found))


def _chain(reader: CodeReader, node: ast.AST, owner: Value, dotted: str) -> Value:
    for name in dotted.split("."):
        owner = access(reader, node, owner, name)
    return owner


def _get_field(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """`string.Formatter().get_field("0.name", ...)` reads what a format string would."""
    for option in options(arguments.get(0)):
        if type(option) is not Const:
            reader.report("unreadable member", "", node)
    for text in strings(arguments.get(0)):
        format_fields(reader, node, f"{{{text}}}")
    return None


def _setattr(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    for name in strings(arguments.get(1)):
        access(reader, node, arguments.get(0), name, load=False)
        reader.keep(name, arguments.get(2))
    return None


def _getters(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """Names are reported now: what the getter is called with can be far from here."""
    made = [Getter(tuple(name.split("."))) for value in arguments.positional for name in strings(value)]
    for getter in made:
        for name in getter.names:
            access(reader, node, None, name)
    if not made:
        reader.report("unreadable member", "", node)
    return made[0] if len(made) == 1 else None


def _methodcaller(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    return _getters(reader, node, Arguments(arguments.positional[:1]))


def _itemgetter(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:  # noqa: ARG001
    names = tuple(strings(arguments.get(0)))
    return Getter(names, items=True) if len(names) == 1 else None


def _getitem(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    return item(reader, node, arguments.get(0), arguments.get(1))


def _partial(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:  # noqa: ARG001
    return Partial(arguments.get(0), arguments.positional[1:], arguments.named, arguments.more)


def _reduce(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """`reduce(getattr, ["a", "b"], x)`: the one use of it that reaches members."""
    names, value = arguments.get(1), arguments.get(2)
    if "builtins.getattr" in paths(arguments.get(0)) and type(names) is Items:
        for name in names.values:
            value = _getattr(reader, node, Arguments((value, name)))
        return value
    return None


def _namespace(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:  # noqa: ARG001
    """`globals()`, `locals()`, `vars()` are the cell's own names; `vars(x)` is x, by other means."""
    return arguments.get(0) if arguments.positional else "globals()"


def _import(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """`__import__("a.b")` gives a, unless `fromlist` is given."""
    whole = arguments.has(3, "fromlist")
    return merge_all(
        tuple(path if whole else path.partition(".")[0] for path in _imported(reader, node, arguments))
    )


def _import_module(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    return merge_all(tuple(_imported(reader, node, arguments)))


def _imported(reader: CodeReader, node: ast.AST, arguments: Arguments) -> list[str]:
    found: list[str] = []
    for option in options(arguments.get(0, "name")):
        if type(option) is Const and isinstance(option.value, str):
            package = next(strings(arguments.get(1, "package")), "") if option.value[:1] == "." else ""
            name = package + option.value.replace(":", ".")
            path = reader.import_module(node, name)
            reader.modules.add(path.partition(".")[0])
            found.append(path)
        else:
            reader.report("unreadable module", "", node)
    return found


def _located(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """`pydoc.locate("os.system")`, `pkgutil.resolve_name("os:system")`: a member of a module, in one string."""
    for text in strings(arguments.get(0)):
        root, *names = text.replace(":", ".").split(".")
        reader.modules.add(root)
        return _chain(reader, node, reader.import_module(node, root), ".".join(names)) if names else root
    reader.report("unreadable module", "", node)
    return None


def _type(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    reader.use_function(node, "builtins.type")
    if len(arguments.positional) == 3:
        reader.use_function(node, "types.new_class")
    value = arguments.get(0)
    if type(value) is Closure or value == SOME_FUNCTION:
        return "types.FunctionType"
    if reader.is_module(value):
        return "types.ModuleType"
    return value.removesuffix("()") if type(value) is str and value.endswith("()") else None


def _run(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    given = options(arguments.get(0, "source"))
    return merge_all(tuple(run_source(reader, node, text) for text in map(_source, given) if text))


def _source(value: Value) -> str:
    """Source text, given as text or bytes; "" when it is not known."""
    if type(value) is Const and isinstance(value.value, bytes):
        return value.value.decode("utf-8", "replace")
    return next(strings(value), "")


def _time(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    for index, name in enumerate(("stmt", "setup")):
        value = arguments.get(index, name)
        for text in strings(value):
            run_source(reader, node, text)
        given = arguments.has(index, name)
        if (given and _may_be_any_text(value)) or (arguments.more and not given):
            reader.use_function(node, "timeit.Timer(text)")
    return None


def _model(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    run_types(reader, node, (text for value in arguments.values() for text in _words(value)))
    return None


def _may_be_any_text(value: Value) -> bool:
    """Whether the value may be a text that the code does not spell out; a function is none."""
    found = options(value)
    if any(type(option) in (Closure, Partial, Getter, Bound) for option in found):
        return False
    # A function of a module has a dotted name; what a call returned may be anything.
    return any(
        option is None or (type(option) is str and ("." not in option or option.endswith("()")))
        for option in found
    )


def _yaml_load(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """Without a loader, as former versions of yaml allowed it; loaders that make objects are functions as well."""
    if not arguments.has(1, "Loader"):
        reader.use_function(node, "yaml.unsafe_load")
    return None


def _backend(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """`matplotlib.use("module://m")` imports m."""
    for value in (arguments.get(0, "backend"), arguments.get(0, "newbackend")):
        for text in strings(value):
            if text.startswith("module://"):
                reader.import_module(node, text.removeprefix("module://"))
    return None


def _sql(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """`LOAD` and `INSTALL` of duckdb's SQL bring native code."""
    for text in strings(arguments.get(0, "query")):
        if any(statement.split()[:1] in (["install"], ["load"]) for statement in text.lower().split(";")):
            reader.use_function(node, "duckdb.load_extension")
    return None


def _expression(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """`sympy.simplify("x + x")` evaluates its text."""
    for text in strings(arguments.get(0)):
        run_source(reader, node, text)
    return None


def _formula(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """`ols("y ~ log(x)", data)` evaluates its text, in which bare names are columns."""
    for text in strings(arguments.get(0, "formula")):
        read_formula(reader, node, text)
    return None


def _magic(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """`%name` and `%%name`, written as calls."""
    _named_magic(reader, node, "%", arguments.get(0))
    return None


def _cell_magic(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    _named_magic(reader, node, "%%", arguments.get(0))
    return None


def _named_magic(reader: CodeReader, node: ast.AST, marks: str, name: Value) -> None:
    for option in options(name):
        known = option.value if type(option) is Const and type(option.value) is str else ""
        reader.report("magic", f"{marks}{known}", node)


def _source_shown(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """`name?`, and `name??`, which shows the source code as well."""
    with_source = arguments.get(2, "with_source")
    if not (type(with_source) is Const and with_source.value is False):
        reader.report("magic", "??", node)
    return None


def _start(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    """A program is started: its command line, as far as it is spelled out."""
    words = list(islice((word for value in arguments.positional for word in _words(value)), MOST_WORDS))
    reader.report("command", " ".join(words), node)
    return None


def _words(value: Value) -> Iterator[str]:
    if type(value) is Items:
        for part in value.values:
            yield from _words(part)
    else:
        yield next(strings(value), "?")


def run_query(reader: CodeReader, node: ast.AST, arguments: Arguments) -> None:
    """`frame.query(...)`, `frame.eval(...)`, `pandas.eval(...)`: a small language with attributes and calls."""
    for text in strings(arguments.get(0, "expr")):
        read_query(reader, node, text)


def _pandas_eval(reader: CodeReader, node: ast.AST, arguments: Arguments) -> Value:
    if _may_be_any_text(arguments.get(0, "expr")):
        reader.use_function(node, "pandas.eval(text)")
    run_query(reader, node, arguments)
    return None


_SYMPY = "N S apart cancel diff expand factor integrate kernS limit nsimplify series simplify solve solveset together"
_MODELS = """
    gee glm gls glsar logit mixedlm mnlogit negativebinomial ols ordinal_gee phreg poisson probit quantreg rlm wls
"""

SPECIAL: Mapping[str, Special] = {
    **dict.fromkeys((f"sympy.{name}" for name in _SYMPY.split()), _expression),
    **dict.fromkeys((f"statsmodels.formula.api.{name}" for name in _MODELS.split()), _formula),
    "_magic_.cell": _cell_magic,
    "_magic_.inspect": _source_shown,
    "_magic_.line": _magic,
    "asyncio.create_subprocess_exec": _start,
    "asyncio.create_subprocess_shell": _start,
    "builtins.__import__": _import,
    "builtins.compile": _run,
    "builtins.delattr": _setattr,
    "builtins.eval": _run,
    "builtins.exec": _run,
    "builtins.getattr": _getattr,
    "builtins.globals": _namespace,
    "builtins.hasattr": _setattr,
    "builtins.locals": _namespace,
    "builtins.setattr": _setattr,
    "builtins.type": _type,
    "builtins.vars": _namespace,
    "cProfile.run": _run,
    **dict.fromkeys(
        (f"duckdb.{owner}{name}" for owner in ("", "connect().") for name in ("execute", "query", "sql")),
        _sql,
    ),
    "functools.partial": _partial,
    "functools.reduce": _reduce,
    "importlib.__import__": _import,
    "importlib.import_module": _import_module,
    "importlib.reload": _namespace,
    "importlib.util.find_spec": _import_module,
    "inspect.getattr_static": _getattr,
    "inspect.getmembers": _namespace,
    "matplotlib.pyplot.switch_backend": _backend,
    "matplotlib.use": _backend,
    "operator.attrgetter": _getters,
    "operator.getitem": _getitem,
    "operator.itemgetter": _itemgetter,
    "operator.methodcaller": _methodcaller,
    "os.popen": _start,
    "os.system": _start,
    "pandas.eval": _pandas_eval,
    "patsy.dmatrices": _formula,
    "patsy.dmatrix": _formula,
    "pip.main": _start,
    "pkgutil.resolve_name": _located,
    "pydoc.locate": _located,
    "pydoc.safeimport": _located,
    "pydantic.TypeAdapter": _model,
    "pydantic.create_model": _model,
    "runpy.run_module": _import_module,
    "subprocess.Popen": _start,
    "subprocess.call": _start,
    "subprocess.check_call": _start,
    "subprocess.check_output": _start,
    "subprocess.getoutput": _start,
    "subprocess.getstatusoutput": _start,
    "subprocess.run": _start,
    "string.Formatter().get_field": _get_field,
    "timeit.Timer": _time,
    "timeit.repeat": _time,
    "timeit.timeit": _time,
    "yaml.load": _yaml_load,
    "yaml.load_all": _yaml_load,
}
"""Functions whose calls mean more than a value."""
