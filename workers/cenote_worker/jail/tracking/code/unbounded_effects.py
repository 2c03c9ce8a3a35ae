"""Code that can reach everything, and code that gives another result each time, judging by the names in it.

A pickle names things too. If all its names are known, loading it does no more than they do.
"""

from __future__ import annotations

import copyreg
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from cenote_worker.execution.trace import ASKS_FOR_TIMES
from cenote_worker.jail.tracking.code.bytecode_effects import Facts
from cenote_worker.jail.tracking.code.sql_queries import asks_for_chance
from cenote_worker.jail.tracking.process_state.event_loop_state import OwnThread
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_MAIN: Final = "__main__"

_DATA: Final = frozenset(
    ("numpy", "pandas", "sklearn", "scipy", "collections", "datetime", "decimal", "fractions", "uuid", "pathlib",
     "zoneinfo", "polars", "pyarrow", "_codecs", "array")
)  # fmt: skip
"""Libraries whose classes and functions, as named in pickles, make values without other effects."""

_FUNCTIONS: Final = {
    "copyreg": frozenset(("_reconstructor", "__newobj__", "__newobj_ex__")),
    "functools": frozenset(("partial",)),
    "operator": frozenset(("itemgetter", "attrgetter", "methodcaller")),
    "types": frozenset(("SimpleNamespace",)),
    "joblib.numpy_pickle": frozenset(("NumpyArrayWrapper", "NDArrayWrapper", "ZNDArrayWrapper")),
    "random": frozenset(("Random",)),
    "builtins": frozenset(
        ("bool", "bytearray", "bytes", "complex", "dict", "enumerate", "filter", "float", "frozenset", "getattr",
         "int", "iter", "list", "map", "object", "range", "reversed", "set", "slice", "str", "tuple", "zip",
         "ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError", "LookupError",
         "NameError", "NotImplementedError", "OSError", "OverflowError", "RuntimeError", "StopIteration", "TypeError",
         "ValueError", "ZeroDivisionError")
    ),
}  # fmt: skip
"""By module, other functions that do the same."""

LOADING: Final = {
    "pickle": frozenset(("load", "loads")),
    "cloudpickle": frozenset(("load", "loads")),
    "joblib": frozenset(("load",)),
}
"""By library, functions that load a pickle, with the effects of what it names. A loader that is kept has more
effects: it remembers the names in earlier pickles."""


def is_known(named: Iterable[tuple[str, str]], own_modules: Collection[str]) -> bool:
    """Whether only classes of values were named, and the user's own, whose code is followed where it is named."""
    return not vars(copyreg)["_extension_registry"] and all(
        home == _MAIN or home in own_modules or _makes_values(home, what) for home, what in named
    )


def _makes_values(home: str, what: str) -> bool:
    return home.partition(".")[0] in _DATA or what in _FUNCTIONS.get(home, ())


_EVERYTHING: Final = frozenset(("exec", "eval", "globals", "__import__"))
_BY_ANY_NAME: Final = _EVERYTHING | {"locals", "vars", "dir"}
"""The same and more, when they are reached by other names."""

_WRITE_FILE: Final = "_magic_.write_file"
"""`%%writefile`: it writes a file, which is noticed, and nothing else. Other magics may do anything."""

_MAIN_MODULES: Final = frozenset(("__main__", "__mp_main__"))
"""Modules that are the namespace; the second name is that of `multiprocessing`."""

_FRAMES: Final = frozenset(
    (
        "f_globals",
        "f_locals",
        "f_back",
        "tb_frame",
        "gi_frame",
        "cr_frame",
        "__globals__",
        "__subclasses__",
        "__weakref__",
    )
)
_REFLECTION: Final = frozenset(
    (
        "get_objects",
        "get_referrers",
        "get_referents",
        "modules",
        "_getframe",
        "currentframe",
        "_current_frames",
        "getrefcount",
        "getweakrefcount",
        "getweakrefs",
    )
)
_REFLECTING: Final = frozenset(("gc", "sys", "inspect", "weakref", "_weakref"))
_LATER: Final = frozenset(
    ("atexit", "signal", "sys.settrace", "sys.setprofile", "faulthandler", "ctypes", "cffi")
)
"""Modules with which code schedules itself for later, or writes anywhere."""

_BY_NAME: Final = {
    "pickle": frozenset(("load", "loads", "Unpickler")),
    "cloudpickle": frozenset(("load", "loads")),
    "dill": frozenset(("load", "loads", "load_session")),
    "joblib": frozenset(("load",)),
    "inspect": frozenset(("getmodule",)),
    "pkgutil": frozenset(("resolve_name",)),
    "pydoc": frozenset(("locate", "resolve", "safeimport")),
    "yaml": frozenset(
        ("unsafe_load", "unsafe_load_all", "UnsafeLoader", "Loader", "CUnsafeLoader", "CLoader")
    ),
    "shelve": frozenset(("open",)),
    "unittest": frozenset(("main", "TestLoader", "defaultTestLoader", "patch", "start", "stop")),
    "doctest": frozenset(("testmod", "run_docstring_examples")),
    "typing": frozenset(("get_type_hints",)),
    "multiprocessing": frozenset(("SharedMemory", "ShareableList")),
    "cProfile": frozenset(("run", "runctx")),
    "profile": frozenset(("run", "runctx")),
    "runpy": frozenset(("run_module", "run_path")),
    "code": frozenset(("interact", "InteractiveInterpreter", "InteractiveConsole")),
}
"""By library: functions that look up names in `__main__` that their caller does not mention, or see untracked
state."""

_ABSTRACT: Final = frozenset(("abc", "collections", "numbers", "io", "importlib", "os", "numpy", "typing"))
"""Libraries with abstract classes. The classes registered with these show nowhere."""

_CLOCKS: Final = frozenset(
    ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "localtime",
     "gmtime", "ctime", "strftime", "thread_time", "clock_gettime")
)  # fmt: skip
_MOMENTS: Final = frozenset(("now", "today", "utcnow"))
_ENTROPY: Final = frozenset(
    ("urandom", "getrandom", "SystemRandom", "uuid1", "uuid4", "getpid", "mkdtemp", "mkstemp")
)
_TIMES: Final = frozenset(
    (
        "getmtime",
        "getatime",
        "getctime",
        "st_mtime",
        "st_atime",
        "st_ctime",
        "st_mtime_ns",
        "st_atime_ns",
        "st_ctime_ns",
    )
)
_PLACES: Final = frozenset(
    ("format_exc", "format_exception", "getcomments", "getdoc", "print_exc", "print_exception", "print_tb",
     "print_stack", "format_tb", "format_stack", "extract_tb", "getsource", "getsourcelines",
     "findsource", "co_firstlineno", "co_lines", "co_positions", "tb_lineno", "f_lineno", "lineno",
     "TracebackException", "StackSummary", "walk_tb", "__firstlineno__")
)  # fmt: skip
"""Functions and attributes that tell line numbers; versions of functions don't include these."""

_LOGGING: Final = frozenset(
    ("debug", "info", "warning", "warn", "error", "critical", "fatal", "exception", "log", "handle", "makeRecord",
     "captureWarnings")
)  # fmt: skip

_UNSEEDED: Final = (
    "default_rng()",
    "Random()",
    "RandomState()",
    "SeedSequence()",
    "PCG64()",
    "seed()",
    "set_seed()",
)

_TOOLS: Final = range(6)
"""Numbers of the tools of `sys.monitoring`; others are the interpreter's own."""


if sys.version_info >= (3, 12):
    _tool_of: Callable[[int], str | None] = sys.monitoring.get_tool
else:

    def _tool_of(_tool: int) -> str | None:
        return None


_modules = sys.modules
_alive = threading._active  # type: ignore[attr-defined]


def sees_everything(
    facts: Facts,
    packages: frozenset[str],
    namespace: Mapping[str, object],
    *,
    registered: bool,
    pickles_known: bool,
) -> tuple[str, ...]:
    """Reasons why the code may read and write anything; empty for ordinary code.

    namespace: a user's own function may have the same name as one that sees everything. registered: a class has been
    registered with an abstract one by now; until then, no call of `register` can have found that it was already.
    pickles_known: all names in pickles that were loaded while it ran are known.
    """
    reasons = [f"it uses `{word}`" for word in sorted(facts.loads & _EVERYTHING) if word not in namespace]
    reasons += [f"it uses `{word}`" for word in sorted(facts.attributes & _FRAMES)]
    if "_magic_" in facts.loads and _magics(facts) != {_WRITE_FILE}:
        reasons.append("it uses a magic")
    if facts.chains & {"locals()", "vars()", "dir()"}:
        reasons.append("it lists the names of the namespace")
    reasons += [f"it imports `{each}`" for each in sorted(facts.imports & _MAIN_MODULES)]
    libraries = packages | facts.imports
    if libraries & _REFLECTING and facts.attributes & _REFLECTION:
        reasons.append(f"it uses `{min(facts.attributes & _REFLECTION)}`")
    reasons += [f"it uses `{library}`" for library in sorted(libraries & _LATER)]
    words = facts.attributes | facts.loads
    if "builtins" in libraries:
        reasons += [f"it uses `{word}`" for word in sorted(facts.attributes & _BY_ANY_NAME)]
    if registered and registers(facts, libraries):
        reasons.append("it registers a class with an abstract one")
    for library in sorted(libraries & _BY_NAME.keys()):
        known = LOADING.get(library, frozenset()) if pickles_known else frozenset[str]()
        reasons += [f"it uses `{library}.{word}`" for word in sorted(words & _BY_NAME[library] - known)]
    return tuple(reasons)


def registers(facts: Facts, libraries: frozenset[str]) -> bool:
    """Whether the code may register a class with an abstract one; other things have a `register` as well."""
    return "register" in facts.attributes | facts.loads and bool((libraries | facts.imports) & _ABSTRACT)


def _magics(facts: Facts) -> set[str]:
    return {chain for chain in facts.chains if chain.startswith("_magic_.")}


def differs_each_time(facts: Facts, packages: frozenset[str]) -> tuple[str, ...]:
    """Reasons why running the code again may give another result."""
    libraries, words = packages | facts.imports, facts.attributes | facts.loads
    reasons = list[str]()
    if "time" in libraries and words & _CLOCKS:
        reasons.append("it asks for the time")
    if words & _MOMENTS:
        reasons.append("it asks for the time")
    if words & _TIMES:
        reasons.append(ASKS_FOR_TIMES)
    if words & _PLACES or "dis" in libraries:
        reasons.append("it asks where code stands")
    if words & _ENTROPY or "secrets" in libraries:
        reasons.append("it asks the system for something random")
    if any(chain.endswith(_UNSEEDED) for chain in facts.chains):
        reasons.append("it seeds a generator from the system")
    if any(ask.text is not None and asks_for_chance(ask.text) for ask in facts.asks):
        reasons.append(ASKS_DATABASES_FOR_CHANCE)
    return tuple(dict.fromkeys(reasons))


ASKS_DATABASES_FOR_CHANCE: Final = "it asks a database for a random number or for the time"


def logs(facts: Facts) -> bool:
    """Whether the code may log something itself; libraries' own logging is handled elsewhere."""
    return not _LOGGING.isdisjoint(facts.attributes | facts.loads)


def is_told() -> bool:
    """Whether a user's function is notified of running code, so that any step may do what that function does."""
    if sys.gettrace() or sys.getprofile():
        return True
    return any(_tool_of(tool) is not None for tool in _TOOLS)


def others_at_work() -> bool:
    """Whether other user threads than the calling one are alive, or tasks wait for the event loop."""
    users = sum(type(thread) is not OwnThread for thread in list(_alive.values()))
    return users > 1 or _waiting_tasks()


def _waiting_tasks() -> bool:
    module = _modules.get("asyncio.tasks")
    tasks = getattr(module, "_all_tasks", None) or getattr(module, "_scheduled_tasks", None)
    try:
        return tasks is not None and any(not task.done() for task in list(tasks))
    except Exception:  # a task class of the user's
        return True
