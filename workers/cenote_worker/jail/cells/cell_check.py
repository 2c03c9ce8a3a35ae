"""Looks at a cell before it runs. For a cell that is certain to fail, only the failing expression runs.

`certain_failures` finds what fails by its syntax. This module supplies the rest of the certainty: whether anything
could bind the name in a hidden way, by `exec`, `globals()`, a star import, an unknown library, or a function
somewhere in the namespace. That is only checked if a cell would be refused, so it may take some milliseconds. Unknown
code counts as if it bound every name, and then the cell runs.

Known code: the libraries in `_QUIET` bind no names of their callers nor in `builtins`, and end no process, unless a
name in `_LOUD_...` makes them do so. User code is read: the cell, all cells before it, and all functions that can be
reached from the namespace.
"""

from __future__ import annotations

import ast
import builtins
import dis
import gc
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Final

from cenote_worker.jail.cells.ipython_syntax import MAGIC, to_python
from cenote_worker.jail.cells.source import Cell, CellCompiler
from cenote_worker.jail.cells.static_errors import EXACT, CertainFailure, certain_failures
from cenote_worker.jail.errors.traceback_frames import owner_of
from cenote_worker.jail.rendering.bounded_text import module_name
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

NOTHING_RAN: Final = "nothing of this cell has run: it was checked first"

_MOST_OBJECTS: Final = 300_000
"""Objects looked at. In a namespace with more, nothing is certain."""

_QUIET: Final = frozenset((
    "PIL", "_cffi_backend", "_cyutility", "_distutils_hack", "_duckdb", "_plotly_utils", "_polars_runtime_32",
    "_yaml", "annotated_types", "anyio", "attr", "attrs", "bs4", "cenote_proto", "cenote_security",
    "cenote_worker", "certifi", "chardet", "charset_normalizer", "cloudpickle", "contourpy", "cycler",
    "cython_runtime", "dateutil", "defusedxml", "duckdb", "et_xmlfile", "fontTools", "google", "h11", "h2",
    "hpack", "html5lib", "httpcore", "httpx", "hyperframe", "idna", "jinja2", "joblib", "jsonschema",
    "jsonschema_specifications", "kiwisolver", "lxml", "markdown_it", "markupsafe", "matplotlib", "mdurl",
    "more_itertools", "mpl_toolkits", "narwhals", "networkx", "numexpr", "numpy", "openpyxl", "packaging",
    "pandas", "plotly", "polars", "psutil", "pyarrow", "pydantic", "pydantic_core", "pygments", "pyparsing",
    "pytz", "referencing", "regex", "requests", "rich", "rpds", "scipy", "six", "sklearn", "sniffio",
    "sortedcontainers", "soupsieve", "tabulate", "threadpoolctl", "tomli", "tomli_w", "toolz", "tqdm",
    "typing_extensions", "typing_inspection", "tzdata", "tzlocal", "urllib3", "webencodings", "xlrd",
    "xlsxwriter", "xxhash", "yaml", "zstandard",
))  # fmt: skip
_OWN: Final = ("__main__", "__mp_main__", "cenote_proto", "cenote_security", "cenote_worker")
"""Loaded before any cell runs."""

_BUILD_TOOLS: Final = re.compile(r"_cython_\d|_sysconfigdata_|__editable__|\w+__mypyc$")
"""Names of modules that they create."""

_LOUD_MODULES: Final = frozenset((
    "__main__", "_ctypes", "antigravity", "argparse", "bdb", "builtins", "cProfile", "cffi", "cloudpickle",
    "code", "codeop", "copyreg", "ctypes", "doctest", "ensurepip", "gc", "gettext", "idlelib", "imp",
    "importlib", "joblib", "lib2to3", "marshal", "optparse", "pdb", "pickle", "pickletools", "pkgutil",
    "profile", "pydoc", "rlcompleter", "runpy", "shelve", "site", "test", "this", "timeit", "tkinter", "trace",
    "turtle", "turtledemo", "unittest", "venv", "zipapp", "zipimport",
))  # fmt: skip
"""If user code calls them, they can bind names anywhere, run any code, or end a cell without an error. Just being
loaded they do nothing."""

_LOUD_NAMES: Final = frozenset((
    "SystemExit", "__builtins__", "__import__", "breakpoint", "compile", "delattr", "eval", "exec", "exit",
    "get_ipython", "getattr", "globals", "locals", "quit", "setattr", "shared", "vars", MAGIC,
))  # fmt: skip
_LOUD_ATTRIBUTES: Final = frozenset((
    "CodeType", "ForwardRef", "FullLoader", "FunctionType", "HDFStore", "ImportString", "Loader", "SystemExit",
    "UnsafeLoader", "__builtins__", "__code__", "__defaults__", "__delattr__", "__dict__", "__getattribute__",
    "__globals__", "__import__", "__kwdefaults__", "__self__", "__setattr__", "__subclasses__",
    "_current_frames", "_exit", "_getframe", "abort", "ag_frame", "allow_pickle", "attrgetter", "cr_frame",
    "currentframe", "dictConfig", "eval", "evaluate_forward_ref", "exec", "exec_module", "exit", "f_back",
    "f_builtins", "f_globals", "f_locals", "fileConfig", "full_load", "get_ipython", "get_type_hints",
    "getattr_static", "getinnerframes", "getouterframes", "gi_frame", "import_module", "load_module",
    "load_session", "load_workspace", "locate", "meta_path", "methodcaller", "module_from_spec", "modules",
    "parse_args", "parse_known_args", "path_hooks", "path_importer_cache", "read_hdf", "read_pickle", "reload",
    "resolve_name", "retrieve", "run_cell", "run_cell_magic", "run_line_magic", "run_module", "run_path",
    "setattr", "setprofile", "settrace", "tb_frame", "unsafe_load", "unsafe_load_all", "user_global_ns",
    "user_ns",
))  # fmt: skip
"""Names that can give a value to any name, replace the code of a function, or end a cell without an error."""

_LOUD_TEXT: Final = re.compile(
    r"__main__.|.__main__|builtins|__globals__|__import__|__dict__|_getframe|f_globals|globals\(|exec\(|eval\(|setattr"
    r"|SystemExit"
)
"""These in a text, which may be code. `__main__` alone is what `__name__` is compared with."""

_LOUD_OBJECTS: Final = frozenset(
    id(each)
    for each in (
        *(vars(builtins)[name] for name in _LOUD_NAMES & set(vars(builtins))),
        object.__setattr__,
        object.__getattribute__,
        sys.exit,
    )
)
_ATOMS: Final = frozenset(
    (int, float, complex, bool, str, bytes, bytearray, type(None), type(...), range, slice)
)
_READING: Final = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTE: Final = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM")
_STORING: Final = ("STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL", "DELETE_NAME")
_STORING_ATTRIBUTE: Final = ("STORE_ATTR", "DELETE_ATTR")
_FINDERS: Final = (BuiltinImporter, FrozenImporter, PathFinder)
_modules = sys.modules
_owners: dict[str, str] = {}


class CellCheck:
    """The check for the cells of one compiler."""

    def __init__(self, compiler: CellCompiler) -> None:
        self._compiler = compiler
        self._read: dict[str, _Reading] = {}

    def checked(self, cell: Cell, namespace: Mapping[str, object], shared: Mapping[str, object]) -> Cell:
        """The cell; or a stand-in that only fails, if it is certain to fail. shared: names that it may reach, too."""
        try:
            failure = self._failure(cell, namespace, shared)
        except (RecursionError, MemoryError, ValueError):  # a cell too deep to be looked at
            return cell
        if failure is None:
            return cell
        return Cell(filename=cell.filename, body=None, last=failure.stand_in, is_stand_in=True)

    def _failure(
        self, cell: Cell, namespace: Mapping[str, object], shared: Mapping[str, object]
    ) -> CertainFailure | None:
        found = certain_failures(cell.statements, namespace, vars(builtins), cell.filename, _is_watched)
        first = next(found, None)
        if first is None:
            return None
        before = cell.statements[: first.statement + 1]
        hidden = _Hidden(first.names, first.attribute)
        if any(hidden.is_in(_read(each)) for each in before) or _is_foreign_code_loaded():
            return None
        if self._compiler.has_forgotten or any(map(hidden.is_in, self._earlier(cell.filename))):
            return None
        return None if _others_at_work() or hidden.is_reached(namespace, shared) else first

    def _earlier(self, filename: str) -> Iterator[_Reading]:
        """All other cells whose source is available."""
        sources = self._compiler.sources
        self._read = {name: reading for name, reading in self._read.items() if name in sources}
        for name, (source, _) in sources.items():
            if name != filename and name not in self._read:
                self._read[name] = self._reading_of(source)
        yield from (reading for name, reading in self._read.items() if name != filename)

    def _reading_of(self, source: str) -> _Reading:
        statements = self._compiler.statements(source) or self._compiler.statements(to_python(source))
        return _joined(map(_read, statements))


def _is_watched(function: FunctionType) -> bool:
    """Whether its calls are checked: a user's function, or the stub of one of the client."""
    return EXACT in vars(function) or _is_of_user(function)


# -- code as syntax --


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """The names that code may bind. is_loud: any name. stored: attributes of objects."""

    is_loud: bool = False
    names: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()


def _joined(readings: Iterable[_Reading]) -> _Reading:
    all_of = list(readings)
    return _Reading(
        is_loud=any(each.is_loud for each in all_of),
        names=frozenset().union(*(each.names for each in all_of)),
        stored=frozenset().union(*(each.stored for each in all_of)),
    )


def _read(statement: ast.stmt) -> _Reading:
    names: set[str] = set()
    stored: set[str] = set()
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        waiting.extend(_parts(node))
        if _is_loud(node):
            return _Reading(is_loud=True)
        if isinstance(node, ast.Global):
            names.update(node.names)
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            stored.add(node.attr)
    return _Reading(names=frozenset(names), stored=frozenset(stored))


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node to look at: `getattr` with a literal attribute name is equivalent to a dot."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
        asked = node.args[1] if len(node.args) > 1 else None
        word = asked.value if isinstance(asked, ast.Constant) else None
        if isinstance(word, str) and word not in _LOUD_ATTRIBUTES and not word.startswith("__"):
            yield from node.args
            return
    yield from ast.iter_child_nodes(node)


def _is_loud(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _LOUD_NAMES
    if isinstance(node, ast.Attribute):
        return node.attr in _LOUD_ATTRIBUTES or (
            not isinstance(node.ctx, ast.Load) and node.attr.startswith("__")
        )
    if isinstance(node, ast.keyword):
        return node.arg in _LOUD_ATTRIBUTES
    if isinstance(node, ast.MatchClass):
        return not _LOUD_ATTRIBUTES.isdisjoint(node.kwd_attrs)
    if isinstance(node, ast.Import):
        return not all(_may_be_imported(each.name) for each in node.names)
    if isinstance(node, ast.ImportFrom):
        names = {each.name for each in node.names}
        if node.level or not node.module or not names.isdisjoint({"*", *_LOUD_NAMES, *_LOUD_ATTRIBUTES}):
            return True
        return not _may_be_imported(node.module)
    return isinstance(node, ast.Constant) and _is_loud_text(node.value)


def _is_loud_text(value: object) -> bool:
    return type(value) is str and _LOUD_TEXT.search(value) is not None


def _may_be_imported(module: str) -> bool:
    top = module.partition(".")[0]
    return top not in _LOUD_MODULES and _is_quiet(top) and not _is_of_files(top)


def _is_quiet(module: str) -> bool:
    top = module.partition(".")[0]
    return top in _QUIET or top in sys.stdlib_module_names or _BUILD_TOOLS.match(top) is not None


def _is_of_files(top: str) -> bool:
    """Whether a module that is not loaded yet is a file of the user's, whatever its name. Loaded modules are looked
    at in any case."""
    if top in _modules:
        return False
    for finder in _FINDERS:
        if (spec := finder.find_spec(top)) is not None:
            return spec.has_location and not _is_library(spec.origin or "")
    return False  # its import fails


# -- what is loaded, and what runs --


def _is_library(file: str) -> bool:
    owner = _owners.get(file)
    if owner is None:
        owner = _owners[file] = owner_of(file)
    return owner in ("library", "cenote")


def _is_foreign_code_loaded() -> bool:
    """Whether there is an unknown module: of another library, or of a user's file."""
    return any(map(_is_foreign, list(_modules), list(_modules.values())))


def _is_foreign(name: str, module: ModuleType | None) -> bool:
    if name.partition(".")[0] in _OWN:
        return False
    if not _is_quiet(name):
        return True
    file = vars(module).get("__file__") if type(module) is ModuleType else None
    return type(file) is str and not _is_library(file)


def _others_at_work() -> bool:
    """Whether another thread runs user code."""
    own = threading.get_ident()
    return any(
        ident != own and not all(_is_library(each.f_code.co_filename) for each in _stack(frame))
        for ident, frame in sys._current_frames().items()
    )


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_of_user(function: FunctionType) -> bool:
    """Whether it belongs to no known library: it is of a cell, of a user's module, or injected."""
    home = function.__globals__
    module = _modules.get(str(home.get("__name__")))
    return module is None or vars(module) is not home or not _is_quiet(module.__name__)


# -- what there is --


class _Hidden:
    """Code that could give one of these names a value, or an object another attribute."""

    def __init__(self, names: frozenset[str], attribute: str) -> None:
        self._names = names
        self._attribute = attribute

    def is_in(self, reading: _Reading) -> bool:
        return (
            reading.is_loud or not self._names.isdisjoint(reading.names) or self._attribute in reading.stored
        )

    def is_reached(self, *namespaces: Mapping[str, object]) -> bool:
        """Whether a reachable value could do it, or there are too many to look at."""
        seen = set(map(id, namespaces))
        kept: list[object] = []
        waiting = [value for each in namespaces for key, value in list(each.items()) if key != "__builtins__"]
        while waiting:
            value = waiting.pop()
            if type(value) in _ATOMS or id(value) in seen:
                continue
            seen.add(id(value))
            kept.append(value)  # so that no other object gets its address
            if len(kept) > _MOST_OBJECTS or self._is_by(value):
                return True
            waiting.extend(_leads_to(value, seen))
        return False

    def _is_by(self, value: object) -> bool:
        if id(value) in _LOUD_OBJECTS:
            return True
        if isinstance(value, ModuleType):
            name = str(vars(value).get("__name__")).partition(".")[0]
            return name in _LOUD_MODULES or not _is_quiet(name)
        if type(value) is FunctionType:
            return _is_of_user(value) and self._is_in_code(value.__code__)
        if type(value) is CodeType:
            return not _is_library(value.co_filename) and self._is_in_code(value)
        if isinstance(value, type):
            return module_name(value).partition(".")[0] in _LOUD_MODULES - {"builtins", "__main__"}
        if type(value) is BuiltinFunctionType:
            return str(value.__module__).partition(".")[0] in _LOUD_MODULES - {"builtins"}
        return False

    def _is_in_code(self, code: CodeType) -> bool:
        for step in dis.get_instructions(code):
            what = step.opname
            if (
                (what in _READING and step.argval in _LOUD_NAMES)
                or (what in _ATTRIBUTE and step.argval in _LOUD_ATTRIBUTES)
                or (what in _STORING and step.argval in self._names)
                or (what in _STORING_ATTRIBUTE and self._is_stored(str(step.argval)))
                or (what == "IMPORT_NAME" and not _may_be_imported(str(step.argval)))
                or "IMPORT_STAR" in what + step.argrepr
            ):
                return True
        return any(map(self._is_in_constant, code.co_consts))

    def _is_stored(self, attribute: str) -> bool:
        return attribute == self._attribute or attribute.startswith("__")

    def _is_in_constant(self, constant: object) -> bool:
        if type(constant) is CodeType:
            return self._is_in_code(constant)
        if type(constant) is tuple:
            return any(map(self._is_in_constant, constant))
        return _is_loud_text(constant)


def _leads_to(value: object, seen: set[int]) -> Iterable[object]:
    """Objects that code can reach from a value without a loud word."""
    if isinstance(value, ModuleType) or type(value) in (BuiltinFunctionType, CodeType, FrameType):
        return ()
    if isinstance(value, type) and _is_quiet(module_name(value)):
        return ()
    return _held_by(value, seen) if type(value) is FunctionType else gc.get_referents(value)


def _held_by(function: FunctionType, seen: set[int]) -> Iterator[object]:
    """A library's function may wrap a user's function, which is then in its closure or among its attributes."""
    yield from function.__closure__ or ()
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from vars(function).values()
    home = function.__globals__
    if _is_of_user(function) and id(home) not in seen:
        seen.add(id(home))
        yield from (value for name, value in list(home.items()) if name != "__builtins__")
