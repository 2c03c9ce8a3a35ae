"""Functions that reach members and modules by name, make functions from others, or run source text."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from cenote_security.rules.reading import source
from cenote_security.rules.reading.arguments import Arguments
from cenote_security.rules.reading.members import access, format_fields, item
from cenote_security.rules.reading.memory import SOME_FUNCTION
from cenote_security.rules.reading.reader import Reader
from cenote_security.rules.reading.value import (
    Bound,
    Closure,
    Const,
    Getter,
    Items,
    Partial,
    Value,
    merge_all,
    options,
    paths,
    strings,
)

MOST_WORDS = 100
"""Words of a command line that rules see."""

Special = Callable[[Reader, ast.AST, Arguments], Value]


def _getattr(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
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


def _chain(reader: Reader, node: ast.AST, owner: Value, dotted: str) -> Value:
    for name in dotted.split("."):
        owner = access(reader, node, owner, name)
    return owner


def _get_field(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    """`string.Formatter().get_field("0.name", ...)` reads what a format string would."""
    for option in options(arguments.get(0)):
        if type(option) is not Const:
            reader.report("unreadable member", "", node)
    for text in strings(arguments.get(0)):
        format_fields(reader, node, f"{{{text}}}")
    return None


def _setattr(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    for name in strings(arguments.get(1)):
        access(reader, node, arguments.get(0), name, load=False)
        reader.keep(name, arguments.get(2))
    return None


def _getters(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    """Names are reported now: what the getter is called with can be far from here."""
    made = [Getter(tuple(name.split("."))) for value in arguments.positional for name in strings(value)]
    for getter in made:
        for name in getter.names:
            access(reader, node, None, name)
    if not made:
        reader.report("unreadable member", "", node)
    return made[0] if len(made) == 1 else None


def _methodcaller(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    return _getters(reader, node, Arguments(arguments.positional[:1]))


def _itemgetter(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:  # noqa: ARG001
    names = tuple(strings(arguments.get(0)))
    return Getter(names, items=True) if len(names) == 1 else None


def _getitem(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    return item(reader, node, arguments.get(0), arguments.get(1))


def _partial(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:  # noqa: ARG001
    return Partial(arguments.get(0), arguments.positional[1:], arguments.named, arguments.more)


def _reduce(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    """`reduce(getattr, ["a", "b"], x)`: the one use of it that reaches members."""
    names, value = arguments.get(1), arguments.get(2)
    if "builtins.getattr" in paths(arguments.get(0)) and type(names) is Items:
        for name in names.values:
            value = _getattr(reader, node, Arguments((value, name)))
        return value
    return None


def _namespace(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:  # noqa: ARG001
    """`globals()`, `locals()`, `vars()` are the cell's own names; `vars(x)` is x, by other means."""
    return arguments.get(0) if arguments.positional else "globals()"


def _import(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    """`__import__("a.b")` gives a, unless it is told what it is wanted for."""
    whole = arguments.has(3, "fromlist")
    return merge_all(
        tuple(path if whole else path.partition(".")[0] for path in _imported(reader, node, arguments))
    )


def _import_module(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    return merge_all(tuple(_imported(reader, node, arguments)))


def _imported(reader: Reader, node: ast.AST, arguments: Arguments) -> list[str]:
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


def _located(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    """`pydoc.locate("os.system")`, `pkgutil.resolve_name("os:system")`: a member of a module, in one string."""
    for text in strings(arguments.get(0)):
        root, *names = text.replace(":", ".").split(".")
        reader.modules.add(root)
        return _chain(reader, node, reader.import_module(node, root), ".".join(names)) if names else root
    reader.report("unreadable module", "", node)
    return None


def _type(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    reader.use_function(node, "builtins.type")
    if len(arguments.positional) == 3:
        reader.use_function(node, "types.new_class")
    value = arguments.get(0)
    if type(value) is Closure or value == SOME_FUNCTION:
        return "types.FunctionType"
    if reader.is_module(value):
        return "types.ModuleType"
    return value.removesuffix("()") if type(value) is str and value.endswith("()") else None


def _run(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    given = options(arguments.get(0, "source"))
    return merge_all(tuple(source.run_source(reader, node, text) for text in map(_source, given) if text))


def _source(value: Value) -> str:
    """Source text, given as text or bytes; "" when it is not known."""
    if type(value) is Const and isinstance(value.value, bytes):
        return value.value.decode("utf-8", "replace")
    return next(strings(value), "")


def _time(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    for index, name in enumerate(("stmt", "setup")):
        value = arguments.get(index, name)
        for text in strings(value):
            source.run_source(reader, node, text)
        given = arguments.has(index, name)
        if (given and _may_be_any_text(value)) or (arguments.more and not given):
            reader.use_function(node, "timeit.Timer(text)")
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


def _yaml_load(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    """Without a loader, as former versions of yaml allowed it; loaders that make objects are functions as well."""
    if not arguments.has(1, "Loader"):
        reader.use_function(node, "yaml.unsafe_load")
    return None


def _backend(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    """`matplotlib.use("module://m")` imports m."""
    for value in (arguments.get(0, "backend"), arguments.get(0, "newbackend")):
        for text in strings(value):
            if text.startswith("module://"):
                reader.import_module(node, text.removeprefix("module://"))
    return None


def _sql(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    """`LOAD` and `INSTALL` of duckdb's SQL bring native code."""
    for text in strings(arguments.get(0, "query")):
        if any(statement.split()[:1] in (["install"], ["load"]) for statement in text.lower().split(";")):
            reader.use_function(node, "duckdb.load_extension")
    return None


def _expression(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    """`sympy.simplify("x + x")` evaluates its text."""
    for text in strings(arguments.get(0)):
        source.run_source(reader, node, text)
    return None


def _formula(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    """`ols("y ~ log(x)", data)` evaluates its text, in which bare names are columns."""
    for text in strings(arguments.get(0, "formula")):
        source.read_formula(reader, node, text)
    return None


def _magic(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    """`%name` and `%%name`, written as calls."""
    _named_magic(reader, node, "%", arguments.get(0))
    return None


def _cell_magic(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    _named_magic(reader, node, "%%", arguments.get(0))
    return None


def _named_magic(reader: Reader, node: ast.AST, marks: str, name: Value) -> None:
    for option in options(name):
        known = option.value if type(option) is Const and type(option.value) is str else ""
        reader.report("magic", f"{marks}{known}", node)


def _source_shown(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
    """`name?`, and `name??`, which shows the source code as well."""
    with_source = arguments.get(2, "with_source")
    if not (type(with_source) is Const and with_source.value is False):
        reader.report("magic", "??", node)
    return None


def _start(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
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


def run_query(reader: Reader, node: ast.AST, arguments: Arguments) -> None:
    """`frame.query(...)`, `frame.eval(...)`, `pandas.eval(...)`: a small language with attributes and calls."""
    for text in strings(arguments.get(0, "expr")):
        source.read_query(reader, node, text)


def _pandas_eval(reader: Reader, node: ast.AST, arguments: Arguments) -> Value:
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
