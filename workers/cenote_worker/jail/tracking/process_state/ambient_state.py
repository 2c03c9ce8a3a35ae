"""State of the process that no name leads to: its versions, and which steps use it."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import decimal
import locale
import logging
import os
import random
import sys
import warnings
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

import xxhash

from cenote_worker.execution.trace import ABSENT, Version
from cenote_worker.jail.tracking.descriptions.classes import module_of
from cenote_worker.jail.tracking.descriptions.graph import ATOMS
from cenote_worker.jail.tracking.descriptions.object_memory_unsafe import (
    mark_of_legacy,
    mark_of_random,
    packed,
)
from cenote_worker.jail.tracking.files.file_locks import HELD
from cenote_worker.jail.tracking.fingerprint import fresh
from cenote_worker.jail.tracking.libraries import pytorch
from cenote_worker.jail.tracking.process_state import event_loop_state
from cenote_worker.jail.tracking.process_state.modules import is_of_library
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.process.signals import handlers_of

__builtins__ = BUILTINS

_modules = sys.modules
_sys, _os = sys, os
_variables: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
_getcwd = os.getcwd
_state_of = random.Random.getstate
_shared_random: random.Random = random._inst
_query_locale, _LC_ALL = locale.setlocale, locale.LC_ALL
_manager = logging.Logger.manager
IN_MEMORY: Final = "fsspec.implementations.memory"
"""The module that has the files at `memory://`."""
EVENT_LOOP: Final = "asyncio"
"""State of the cells' event loop that the next cell that awaits sees."""
_root = logging.getLogger()
_SIGNALS: Final = range(1, _signal.NSIG)
_INTERRUPTED: Final = _signal.default_int_handler
_OF_LOGGERS: Final = frozenset((*vars(logging.Logger("")), "manager"))
"""Attributes that every logger has."""

DRAWN: Final = ("random", "numpy.random", pytorch.GENERATOR)
"""States that every draw reads and changes. The other states are read by every step."""

_SHOWING: Final = ("_showwarnmsg_impl", "showwarning", "formatwarning")

_LIBRARY: Final = {
    "matplotlib": "matplotlib", "pandas": "pandas", "numpy": "numpy", "decimal": "decimal", "sklearn": "sklearn",
    "joblib.parallel": "joblib", "numpy.ma": "numpy", "numpy.polynomial": "numpy", "torch": "torch",
    "polars": "polars", "scipy.special": "scipy",
}  # fmt: skip
"""States that matter only to users of the library."""

QUIET: Final = frozenset(
    ("", "__main__", "abc", "builtins", "collections", "copy", "csv", "dataclasses", "datetime", "decimal", "enum",
     "fractions", "functools", "heapq", "io", "itertools", "json", "math", "numpy", "operator", "os", "pandas",
     "pathlib", "posixpath", "random", "re", "statistics", "string", "sys", "textwrap", "time", "typing", "warnings")
)  # fmt: skip
"""Libraries that log nothing. Code that uses any other one may run what the user has put into `logging`."""

_BENEATH: Final = {
    "sklearn": ("pandas", "numpy", "joblib.parallel"), "scipy": ("numpy",), "pandas": ("numpy",),
    "seaborn": ("pandas", "numpy"), "statsmodels": ("pandas", "numpy"), "plotnine": ("pandas", "numpy"),
    "torch": ("numpy",), "matplotlib": ("numpy",), "networkx": ("pandas", "numpy"),
    **dict.fromkeys(("polars", "pyarrow", "duckdb", "_duckdb"), ("pandas", "numpy", "decimal")),
    **dict.fromkeys(("pickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "copyreg"),
                    ("pandas", "numpy", "decimal", "sklearn")),
}  # fmt: skip
"""Libraries that use others or make objects of theirs, so that settings of the others affect their results."""


def beneath(libraries: Iterable[str]) -> set[str]:
    """Libraries of which these may make new objects."""
    return {other for library in libraries if library in _BENEATH for other in _BENEATH[library]}


def versions(used: Collection[str], known: Mapping[str, Version] | None = None) -> dict[str, Version]:
    """The version of each state, by its name; of libraries' settings only if they are used.

    known: a former answer, if nothing has run since: only settings that it lacks are looked at.
    """
    found = dict(known) if known is not None and _has_generators(known) else _basic()
    for state, look in _SETTINGS:
        if state in used and state not in found and _is_imported(state):
            found[state] = _guarded(look)
    return found


def _basic() -> dict[str, Version]:
    """All states but the settings of libraries."""
    found = {"random": _of_random.version(_shared_random)}
    found |= {state: kept.version() for state, kept in _LOOKS}
    if (numpy := _legacy()) is not None:
        found["numpy.random"] = _of_numpy.version(numpy)
    if event_loop_state.is_there():
        found[EVENT_LOOP] = _of_loop()
    if _is_imported("torch"):
        found[pytorch.GENERATOR] = _guarded(pytorch.generator_state)
    return found


def _is_imported(library: str) -> bool:
    """Whether its import has finished, and it was not replaced."""
    module = _modules.get(library)
    return type(module) is ModuleType and not getattr(module.__spec__, "_initializing", False)


def settings() -> frozenset[str]:
    """States of imported libraries: code of a library may use those of any other one."""
    return frozenset(state for state, _ in _SETTINGS if state in _modules)


def _has_generators(states: Container[str]) -> bool:
    """Whether the states of all generators are among these."""
    numpy, torch = _legacy() is not None, _is_imported("torch")
    return (not numpy or "numpy.random" in states) and (not torch or pytorch.GENERATOR in states)


def touched(packages: Iterable[str], words: Iterable[str]) -> set[str]:
    """States that a step may use, by the libraries it reaches and the words of its code, even if none is changed."""
    libraries, spoken = set(packages), set(words)
    found = {"environ", "cwd", "sys.path", "warnings", "locale", "process"}
    if not libraries <= QUIET:
        found.add("logging")
    if event_loop_state.is_there():
        found.add(EVENT_LOOP)
    if "random" in libraries:
        found.add("random")
    if "numpy.random" in libraries or ("numpy" in libraries and "random" in spoken):
        found.add("numpy.random")
    if pytorch.asks_generator(libraries, spoken):
        found.add(pytorch.GENERATOR)
    libraries |= beneath(libraries)
    found.update(state for state, library in _LIBRARY.items() if library in libraries or state in libraries)
    if IN_MEMORY in _modules:
        found.add(IN_MEMORY)
    if libraries & {"seaborn", "plotnine"} or (
        "pandas" in libraries and spoken & {"plot", "hist", "boxplot"}
    ):
        found.add("matplotlib")
    return found


def _of_loop() -> Version:
    if event_loop_state.is_waiting():
        return fresh()
    found = event_loop_state.settings()
    return ABSENT if found is None else _digest(repr(found))


def _guarded(look: Callable[[], object]) -> Version:
    try:
        return _digest(look())
    except Exception:  # it has been replaced by something else
        return fresh()


def _digest(value: Any) -> Version:
    return Version(xxhash.xxh3_128_hexdigest(packed(value)))


class _Look:
    """A version of a state that is computed anew each time, and rarely changes."""

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._data = b""
        self._version = Version("")

    def version(self) -> Version:
        try:
            data = packed(self._look())
        except Exception:  # it has been replaced by something else
            return fresh()
        if data != self._data:
            self._version, self._data = Version(xxhash.xxh3_128_hexdigest(data)), data
        return self._version


class _Generator:
    """A version of a state that is slow to read, valid as long as its mark is the same."""

    def __init__(self, mark: Callable[[Any], object | None], state: Callable[[Any], object]) -> None:
        self._mark_of, self._state_of = mark, state
        self._mark: object | None = None
        self._version = Version("")

    def version(self, generator: object) -> Version:
        try:
            mark = self._mark_of(generator)
        except Exception:  # it has been replaced by something else
            mark = None
        if mark is None or mark != self._mark:  # any change in between makes another mark the next time
            self._version, self._mark = _guarded(lambda: self._state_of(generator)), mark
        return self._version


def _environ() -> object:
    same = vars(_os.environ).get("_data") is _variables
    return (same, _variables)


def _cwd() -> object:
    return _getcwd()


def _path() -> object:
    return [entry for entry in _sys.path if type(entry) is str]


def _process() -> object:
    """The names of the namespace's module and package, which definitions and relative imports use; and for how many
    signals a user's function is called."""
    table = vars(_modules["__main__"])
    return table.get("__name__"), table.get("__package__"), len(_handling_signals())


def _warnings() -> object:
    return [
        (action, _pattern(text), repr(category), _pattern(module), line)
        for action, text, category, module, line in warnings.filters
    ]


def _pattern(pattern: Any) -> object:
    return None if pattern is None else getattr(pattern, "pattern", pattern)


def _logging() -> object:
    loggers = [
        (key, _logger(logger))
        for key, logger in _manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and not _is_plain(logger)
    ]
    known = [found for found in loggers if found[1] != _PLAIN_LOGGER]
    return (_logger(_root), known, _manager.disable)


def _is_plain(logger: logging.Logger) -> bool:
    """Whether it certainly is unchanged since its creation, as nearly all are: each step looks at them all."""
    table = vars(logger)
    handlers, filters = table.get("handlers"), table.get("filters")
    return (
        type(logger) is logging.Logger
        and table.get("level") is logging.NOTSET
        and table.get("propagate") is True
        and table.get("disabled") is False
        and (type(handlers) is list and not handlers)
        and (type(filters) is list and not filters)
        and table.keys() <= _OF_LOGGERS
    )


def _logger(logger: logging.Logger) -> object:
    handlers = [
        (type(handler).__qualname__, handler.level, len(handler.filters), _format(handler.formatter))
        for handler in logger.handlers
    ]
    table = vars(logger)
    others = [(key, _atom(table[key])) for key in table if key not in _OF_LOGGERS]
    return (logger.level, logger.propagate, logger.disabled, handlers, len(logger.filters), others)


def _atom(value: object) -> object:
    """Describes an attribute of a logger. Libraries replace its methods by functions that hold nothing."""
    if type(value) in ATOMS:
        return value
    function: Any = value
    plain = type(value) is FunctionType and not function.__closure__ and not vars(function)
    if plain and is_of_library(function.__code__.co_filename):
        return function.__module__, function.__qualname__
    return fresh()


def _format(formatter: logging.Formatter | None) -> object:
    if formatter is None:
        return None
    return (
        type(formatter).__qualname__,
        formatter._fmt,
        formatter.datefmt,
        type(formatter._style).__qualname__,
    )


def called_back(library: str) -> list[object]:
    """Objects that the library has been given to call or to write to, and does not show: handlers, functions."""
    if type(_modules.get(library)) is not ModuleType or library not in CALLING_BACK:
        return []
    return CALLING_BACK[library]()


def _handlers() -> list[object]:
    """Handlers that do more than show log lines on standard output or error: they store them somewhere. And the
    user's parts of other handlers: filters and formatters."""
    loggers = _loggers()
    filters = [each for logger in loggers for each in logger.filters]
    return [part for logger in loggers for handler in logger.handlers for part in _called(handler)] + filters


def _loggers() -> list[logging.Logger]:
    return [_root, *(each for each in _manager.loggerDict.values() if isinstance(each, logging.Logger))]


def _called(handler: logging.Handler) -> list[object]:
    if not _is_shown(handler):
        return [handler]
    plain = handler.formatter is None or type(handler.formatter) is logging.Formatter
    return [*handler.filters, *(() if plain else (handler.formatter,))]


def logs_lines() -> bool:
    """Whether log lines contain the line number in the code."""
    formatters = [handler.formatter for logger in _loggers() for handler in logger.handlers]
    try:
        return any(each is not None and "lineno" in str(each._fmt) for each in formatters)
    except Exception:  # a formatter of the user's
        return True


def _callbacks_of_numpy() -> list[object]:
    numpy = _modules["numpy"]
    found = [numpy.geterrcall(), *(numpy.get_printoptions()["formatter"] or {}).values()]
    return [each for each in found if each is not None]


def _showing_warnings() -> list[object]:
    """Functions that the user, or a recording of warnings, has put in place of those that show warnings."""
    found = [getattr(warnings, key, None) for key in _SHOWING]
    return [each for each in found if getattr(each, "__module__", None) != "warnings"]


def _handling_signals() -> list[object]:
    """The user's signal handlers; any step may get a signal."""
    found = handlers_of(_SIGNALS)
    return [each for each in found if each is not _INTERRUPTED and not _is_not_the_users(each)]


def _is_not_the_users(handler: object) -> bool:
    """The jail's own handlers are methods of its objects; a library's may wrap a function of the user's."""
    if type(handler) is MethodType:
        return module_of(type(handler.__self__)).startswith("cenote_worker.")
    if type(handler) is not FunctionType or not is_of_library(handler.__code__.co_filename):
        return False
    held = [cell.cell_contents for cell in handler.__closure__ or ()]
    return all(type(each) is not FunctionType or is_of_library(each.__code__.co_filename) for each in held)


def _formatters() -> list[object]:
    """Functions among the options of pandas."""
    waiting, found = [_modules["pandas._config.config"]._global_config], list[object]()
    while waiting:
        for option in waiting.pop().values():
            if type(option) is dict:
                waiting.append(option)
            elif callable(option):
                found.append(option)
    return found


def _is_shown(handler: logging.Handler) -> bool:
    if type(handler) is logging.NullHandler:
        return True
    stream = getattr(handler, "stream", None)
    ours = type(stream).__module__.startswith("cenote_worker") or stream in (_sys.__stdout__, _sys.__stderr__)
    return type(handler) is logging.StreamHandler and ours


CALLING_BACK: Final[dict[str, Callable[[], list[object]]]] = {
    "logging": _handlers,
    "numpy": _callbacks_of_numpy,
    "warnings": _showing_warnings,
    "signal": _handling_signals,
    "asyncio": event_loop_state.called,
    "pandas": _formatters,
    "torch": pytorch.hooks,
}
_PLAIN_LOGGER: Final = (0, True, False, list[object](), 0, list[object]())
"""A logger that has only been created, as imports do."""


def _locale() -> object:
    return _query_locale(_LC_ALL)


def _legacy() -> object | None:
    """numpy's shared generator."""
    mtrand = _modules.get("numpy.random.mtrand")
    return getattr(mtrand, "_rand", None) if type(mtrand) is ModuleType else None


def _legacy_state(shared: Any) -> object:
    state = shared.get_state(legacy=False)
    inner = state["state"]
    return (inner["key"].tobytes(), inner["pos"], state["has_gauss"], state["gauss"])


_of_random, _of_numpy = _Generator(mark_of_random, _state_of), _Generator(mark_of_legacy, _legacy_state)


def _parameters() -> object:
    """Settings of matplotlib; open figures make the state unknown."""
    parameters = _modules["matplotlib"].rcParams
    figures = getattr(_modules.get("matplotlib._pylab_helpers"), "Gcf", None)
    opened = fresh() if figures is not None and figures.figs else ""
    return (
        opened,
        [(key, _told(dict.__getitem__(parameters, key))) for key in sorted(dict.keys(parameters))],
    )


def _told(value: object) -> object:
    """Most of them are numbers and texts, which need no repr."""
    return value if type(value) in ATOMS else repr(value)


def _options() -> object:
    return repr(_modules["pandas._config.config"]._global_config)


def _printing() -> object:
    """How numpy prints, and what it does about errors. The context of the step counts."""
    numpy = _modules["numpy"]
    return repr((numpy.get_printoptions(), numpy.geterr(), numpy.getbufsize()))


def _gaps() -> object:
    """How gaps in numpy's masked arrays print, and what fills them."""
    core = _modules["numpy.ma.core"]
    return repr((vars(core.masked_print_option), core.default_filler))


def _polynomials() -> object:
    """Whether numpy's polynomials print with Unicode characters."""
    base = _modules["numpy.polynomial._polybase"]
    return repr(base.ABCPolyBase._use_unicode)


def _decimals() -> object:
    """With the flags: they are raised once, and stay."""
    return repr(decimal.getcontext()), repr(decimal.DefaultContext).partition("flags=")[0]


def _of_sklearn() -> object:
    return repr(_modules["sklearn"].get_config())


def _of_special_functions() -> object:
    """What scipy's special functions do about errors, which is stored in C."""
    return repr(_modules["scipy.special"].geterr())


def _of_joblib() -> object:
    """The setting of `parallel_config`, which holds from its call on."""
    return repr(getattr(_modules["joblib.parallel"]._backend, "config", None))


def _of_polars() -> object:
    """Settings in Polars' Rust code, and the variables that it may have read already."""
    config = vars(_modules["polars.config"])
    asked = [get() for get in config["_POLARS_CFG_DIRECT_VARS"].values()]
    others = [str(get()) for get, *_ in config.get("_POLARS_CFG_RUNTIME_VARS", {}).values()]
    return asked, others, [item for item in _variables.items() if item[0][:7] == b"POLARS_"]


def _files_in_memory() -> object:
    """The files in fsspec's memory file system, which the whole process shares."""
    system = _modules[IN_MEMORY].MemoryFileSystem
    return [(path, file.getvalue()) for path, file in system.store.items()], system.pseudo_dirs


_SETTINGS: Final = (
    ("matplotlib", _parameters), ("pandas", _options), ("numpy", _printing), ("decimal", _decimals),
    ("sklearn", _of_sklearn), ("joblib.parallel", _of_joblib), (IN_MEMORY, _files_in_memory),
    ("numpy.ma", _gaps), ("numpy.polynomial", _polynomials), ("torch", pytorch.settings), ("polars", _of_polars),
    ("scipy.special", _of_special_functions),
)  # fmt: skip
_LOOKS: Final = (
    ("environ", _Look(_environ)), ("cwd", _Look(_cwd)), ("sys.path", _Look(_path)),
    ("warnings", _Look(_warnings)), ("logging", _Look(_logging)), ("locale", _Look(_locale)),
    ("locks", _Look(HELD.now)),
    ("process", _Look(_process)),
)  # fmt: skip
