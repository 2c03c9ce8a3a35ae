"""What to try instead, for errors that a look at the namespace, files, modules or the jail's limits can answer.

A hint is one short text. Errors that mean a limit of the jail name the limit and how much it is.
"""

from __future__ import annotations

import ast
import builtins
import errno
import importlib.util
import os
import re
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from cenote_worker.jail.cells.packages import has_way_out, network_hint
from cenote_worker.jail.cells.source import COMPILER, CellCompiler
from cenote_worker.jail.cells.terminal import NO_TERMINAL
from cenote_worker.jail.errors.key_hints import FailedExpression, key_hint
from cenote_worker.jail.errors.nearest import nearest
from cenote_worker.jail.errors.traceback_frames import ErrorFrame, raised_in, steps_of
from cenote_worker.jail.process.authors import shared_names
from cenote_worker.jail.rendering.bounded_text import bounded_str, shorten, type_name
from cenote_worker.jail.rendering.signatures import signature_text
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_MIB: Final = 2**20
_COMPILED: Final = 500
"""Bytes of syntax tree per character of source, for a long list of small numbers."""
_WARDEN: Final = 1
_STARTERS: Final = frozenset({"fork", "forkpty", "_fork_exec", "posix_spawn", "posix_spawnp"})
"""Names in the code of a function that starts a process: the error itself could come from any call that would
wait."""

_NO_THREAD: Final = "can't start new thread"

_errno_of = OSError.__dict__["errno"].__get__


def limit_reached(error: BaseException) -> str:
    """`memory`, `disk` or `processes`; empty for an error that names no limit."""
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError):
        number = _errno_of(error)
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return "disk"
        return "processes" if number == errno.EAGAIN and _starts_process(error) else ""
    if isinstance(error, RuntimeError) and _NO_THREAD in bounded_str(error, 200):
        return "processes"
    return ""


def limit_hint(error: BaseException, reason: str) -> str:
    """A sentence about the limit; empty when there is none to name."""
    if reason == "memory":
        most = resource.getrlimit(resource.RLIMIT_DATA)[0]
        return f"the memory limit is {most // _MIB} MiB, what the runtime began with included"
    if reason == "processes":
        most = resource.getrlimit(resource.RLIMIT_NPROC)[0] - _WARDEN
        return f"the limit is {most} processes and threads at once"
    if isinstance(error, OSError) and _errno_of(error) == errno.EFBIG:
        return f"the limit of one file is {resource.getrlimit(resource.RLIMIT_FSIZE)[0] // _MIB} MiB"
    return _disk_hint()


def compiling_hint(size: int) -> str:
    """For a MemoryError of the compiler. size: characters of the cell."""
    most = resource.getrlimit(resource.RLIMIT_DATA)[0]
    limit = f"the memory limit is {most // _MIB} MiB"
    if size * _COMPILED < most:  # the parser raises the same error when its own stack is full
        return f"it is nested too deeply for Python to compile, or memory is short: {limit}"
    return (
        f"{limit}, and Python takes up to {_COMPILED} times the size of code to compile it, which is "
        f"{size / 1e6:.3g} MB here; put data into files, or have them injected, and read them in cells"
    )


def _starts_process(error: BaseException) -> bool:
    steps = steps_of(error)
    return bool(steps) and not _STARTERS.isdisjoint(steps[-1].frame.f_code.co_names)


def _disk_hint() -> str:
    found = os.statvfs(".")
    if found.f_ffree == 0 and found.f_files > 0:
        return f"the limit is {found.f_files} files and folders, in the working directory and /tmp together"
    size = found.f_blocks * found.f_frsize
    used = size - found.f_bfree * found.f_frsize
    return f"used {used // _MIB} MiB of {size // _MIB} MiB, in the working directory and /tmp together"


_MOST_ENTRIES = 2_000
_FEW = 10
_LONGEST_FOLDER = 200

_filename_of = OSError.__dict__["filename"].__get__
_scandir = os.scandir
_environment = os.environ
_executable = sys.executable


def file_hint(error: BaseException) -> str:
    """Files with nearly that name, or what the folder holds; where writing is allowed."""
    path = _filename_of(error)
    if type(path) is bytes:
        path = os.fsdecode(path)
    if type(path) is not str:
        return ""
    number = _errno_of(error)
    if number in (errno.EROFS, errno.EACCES, errno.EPERM):
        # Not `/tmp` where a jail shares that with the host.
        temporary = _environment.get("TMPDIR", "/tmp")[:_LONGEST_FOLDER]
        return f"only the working directory and {temporary} can be written"
    return _missing(path) if number in (errno.ENOENT, errno.ENOTDIR) else ""


def program_hint(error: BaseException) -> str:
    """For a program name without a folder that is not found on the path; empty for any other error."""
    name = _filename_of(error)
    if _errno_of(error) != errno.ENOENT or type(name) is not str or os.sep in name or not name:
        return ""
    return f"no program of that name is installed here, and sys.executable is {_executable}"


def _missing(path: str) -> str:
    folder, name = os.path.split(path)
    names = _entries(folder or ".")
    shown = folder or "the working directory"
    if names is None:
        return f"there is no folder {folder}"
    if found := nearest(name, names):
        return f"nearest in {shown}: {', '.join(found)}"
    if not names:
        return f"{shown} is empty"
    more = f", ... {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"{shown} holds: {', '.join(sorted(names)[:_FEW])}{more}"


def _entries(folder: str) -> list[str] | None:
    try:
        with _scandir(folder) as entries:
            return [entry.name for entry in islice(entries, _MOST_ENTRIES)]
    except OSError:
        return None


_ALIASES = {
    "np": "import numpy as np",
    "pd": "import pandas as pd",
    "pl": "import polars as pl",
    "pa": "import pyarrow as pa",
    "plt": "import matplotlib.pyplot as plt",
    "sns": "import seaborn as sns",
    "dt": "import datetime as dt",
    "Path": "from pathlib import Path",
    "Counter": "from collections import Counter",
    "defaultdict": "from collections import defaultdict",
    "deque": "from collections import deque",
    "namedtuple": "from collections import namedtuple",
    "dataclass": "from dataclasses import dataclass",
    "field": "from dataclasses import field",
    "timedelta": "from datetime import timedelta",
    "date": "from datetime import date",
    "Decimal": "from decimal import Decimal",
    "Fraction": "from fractions import Fraction",
    "Enum": "from enum import Enum",
    "partial": "from functools import partial",
    "reduce": "from functools import reduce",
    "chain": "from itertools import chain",
    "product": "from itertools import product",
    "combinations": "from itertools import combinations",
    "sqrt": "from math import sqrt",
    "Any": "from typing import Any",
    "Optional": "from typing import Optional",
    "uuid4": "from uuid import uuid4",
}
_DISTRIBUTIONS = {
    "scikit_learn": "sklearn",
    "pillow": "PIL",
    "opencv_python": "cv2",
    "beautifulsoup4": "bs4",
    "pyyaml": "yaml",
    "python_dateutil": "dateutil",
}
_FROM = re.compile(r"cannot import name '([^']+)' from (?:partially initialized module )?'([^']+)'")

_name_of = ImportError.__dict__["name"].__get__
_modules = sys.modules
_find_spec = importlib.util.find_spec


def known_import(name: str) -> str:
    """The import statement that most likely defines this name; empty when the name is not a well-known one."""
    if statement := _ALIASES.get(name):
        module = statement.split()[1]
        missing = "" if _exists(module) else f", but {module} is not installed here{_without_network('')}"
        return f"not imported: `{statement}`{missing}"
    if name in sys.stdlib_module_names and not name.startswith("_"):
        return f"not imported: `import {name}`"
    return f"not imported: `import {name}`" if name in _modules and "." not in name else ""


def import_hint(error: BaseException, _steps: list[ErrorFrame]) -> str:
    if match := _FROM.search(bounded_str(error, 500)):
        return _missing_member(match[1], match[2])
    name = _name_of(error)
    if not isinstance(error, ModuleNotFoundError) or type(name) is not str:
        return ""
    parent, _, child = name.rpartition(".")
    if parent and parent in _modules:
        return _found(nearest(child, _submodules(parent)), f"nearest in {parent}")
    return f"not installed here{_without_network(',')}{_alternative(name)}"


def _without_network(joint: str) -> str:
    return "" if has_way_out() else f"{joint} and there is no network"


def _missing_member(name: str, module: str) -> str:
    if module not in _modules:
        return ""
    members = [member for member in list(vars(_modules[module])) if member[:1] != "_"]
    return _found(nearest(name, members), f"nearest in {module}")


def _alternative(name: str) -> str:
    if (module := _DISTRIBUTIONS.get(name.replace("-", "_").lower())) and _exists(module):
        return f"; it is imported as {module}"
    hint = _found(nearest(name, _installed()), "nearest installed")
    return f"; {hint}" if hint else ""


def _found(names: list[str], what: str) -> str:
    return f"{what}: {', '.join(names)}" if names else ""


def _exists(module: str) -> bool:
    if module.partition(".")[0] in _modules:
        return True
    try:
        return _find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _installed() -> Iterator[str]:
    """Top-level modules: the standard library's, then those in the folders of `sys.path`."""
    yield from (name for name in sys.stdlib_module_names if not name.startswith("_"))
    for folder in sys.path[:20]:
        yield from _modules_in(folder)


def _submodules(package: str) -> Iterator[str]:
    for folder in list(getattr(_modules[package], "__path__", ()))[:5]:
        yield from _modules_in(folder)


def _modules_in(folder: str) -> Iterator[str]:
    try:
        with _scandir(folder or ".") as entries:
            files = [entry.name for entry in islice(entries, 5_000)]
    except OSError:
        return
    for file in files:
        name = file.partition(".")[0]
        if name.isidentifier() and (file.endswith((".py", ".so")) or "." not in file):
            yield name


HINT_CHARS = 600

_NETWORK_WORDS = re.compile(
    r"Network is unreachable|Name or service not known|Temporary failure in name resolution|No route to host"
    r"|nodename nor servname|getaddrinfo failed|Failed to resolve|NameResolutionError|NewConnectionError"
    r"|urlopen error \[Errno 13\]"
)
_NETWORK_ERRORS = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EAFNOSUPPORT)
NO_LISTENING = (
    "programs here cannot listen on a port, not even on 127.0.0.1: call the code directly, or use a Unix socket "
    "(socket.AF_UNIX with a path), a pipe or a queue"
)
_BINDING = frozenset({"bind", "create_server", "server_bind", "_bind_sockets", "bind_sockets", "bind_socket"})
_LOOP_RUNS = re.compile(r"event loop is already running|cannot be called from a running event loop")
_UNKNOWN_NAME = re.compile(r"name '(\w+)' is not defined|local variable '(\w+)'")

_OF_IPYTHON = re.compile(r"_{2,3}|_i{1,3}|_i?[0-9]+|_[iod]h|In|Out")
_NO_RESULTS = "only `_` holds a result here, the last one: assign what is used later to a name of its own"

_undefined_name_of = NameError.__dict__["name"].__get__
_attribute_of = AttributeError.__dict__["name"].__get__
_object_of = AttributeError.__dict__["obj"].__get__


class Hints:
    """Finds hints for errors of cells of one compiler. Never raises, and runs no user code but `__dir__`."""

    def __init__(self, compiler: CellCompiler) -> None:
        self._compiler = compiler
        self._finders: tuple[
            tuple[type[BaseException], Callable[[BaseException, list[ErrorFrame]], str]], ...
        ] = (
            (NameError, self._name),
            (AttributeError, self._attribute),
            (KeyError, self._key),
            (ImportError, import_hint),
            (TypeError, self._type),
            (EOFError, self._end_of_input),
            (OSError, self._system),
            (Exception, self._by_text),
        )

    def of(self, error: BaseException) -> str:
        """The hint for an error; empty when there is none."""
        try:
            if reason := limit_reached(error):
                compiling = reason == "memory" and raised_in(error) == COMPILER
                return compiling_hint(self._compiler.newest_size) if compiling else limit_hint(error, reason)
            steps = steps_of(error)
            for kind, find in self._finders:
                if isinstance(error, kind) and (hint := find(error, steps)):
                    return shorten(hint, HINT_CHARS)
        except Exception:  # whatever a hostile value did, the error itself is what matters
            return ""
        return ""

    def _name(self, error: BaseException, steps: list[ErrorFrame]) -> str:
        name = _undefined_name_of(error)
        if type(name) is not str:
            match = _UNKNOWN_NAME.search(bounded_str(error, 300))
            name = (match[1] or match[2]) if match else None
        if not name or not steps:
            return ""
        if statement := known_import(name):
            return statement
        if _OF_IPYTHON.fullmatch(name):
            return _NO_RESULTS
        if name in shared_names():
            return f"it is one of the shared names: shared.{name}"
        return _nearest(name, _visible_names(steps[-1]))

    def _attribute(self, error: BaseException, _steps: list[ErrorFrame]) -> str:
        name, obj = _attribute_of(error), _object_of(error)
        if type(name) is not str:
            return ""
        if type_name(type(obj)) == "coroutine":
            return "a coroutine has no result yet: write `await` before the call"
        names = (member for member in dir(obj) if type(member) is str)
        return _nearest(name, names if name[:1] == "_" else (word for word in names if word[:1] != "_"))

    def _key(self, error: BaseException, steps: list[ErrorFrame]) -> str:
        return key_hint(error, steps, self._compiler)

    def _type(self, error: BaseException, steps: list[ErrorFrame]) -> str:
        text = bounded_str(error, 500)
        if "'coroutine'" in text:
            return "a coroutine has no result yet: write `await` before the call"
        if "argument" not in text or not steps:
            return ""
        users = [step for step in steps if step.owner != "library"]
        function = FailedExpression(self._compiler, users[-1]).called() if users else None
        signature = signature_text(function) if callable(function) else ""
        if not signature:
            return ""
        name = getattr(function, "__name__", "")
        return f"signature: {name if type(name) is str else ''}{signature}"

    def _end_of_input(self, error: BaseException, _steps: list[ErrorFrame]) -> str:
        text = bounded_str(error, 500)
        # A library's error about a file that ends too soon has nothing to do with a terminal.
        return NO_TERMINAL if not text or "reading a line" in text else ""

    def _system(self, error: BaseException, steps: list[ErrorFrame]) -> str:
        if _errno_of(error) in _NETWORK_ERRORS:
            return network_hint()
        refused = _errno_of(error) in (errno.EPERM, errno.EACCES) and _filename_of(error) is None
        if refused and (asked := self._asked_of_socket(error, steps)):
            return NO_LISTENING if asked == "bind" else network_hint()
        if refused and steps and steps[-1].filename.endswith(("/socket.py", "/selector_events.py")):
            return network_hint()
        if steps and steps[-1].filename.endswith("/subprocess.py") and (hint := program_hint(error)):
            return hint
        return file_hint(error)

    def _asked_of_socket(self, error: BaseException, steps: list[ErrorFrame]) -> str:
        """`bind` or `connect`, if the cell's own call or that of a library was refused."""
        if "bind on address" in bounded_str(error, 300):  # asyncio, after its own frames
            return "bind"
        if not steps:
            return ""
        last = steps[-1]
        if last.owner == "library":
            listener = last.filename.endswith("/multiprocessing/connection.py") and last.function.endswith(
                "__init__"
            )
            return "bind" if listener or last.frame.f_code.co_name in _BINDING else ""
        tree = FailedExpression(self._compiler, last).tree
        asked = tree.func.attr if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute) else ""
        return asked if asked in ("bind", "connect") else ""

    def _by_text(self, error: BaseException, _steps: list[ErrorFrame]) -> str:
        text = bounded_str(error, 2_000)
        if _NETWORK_WORDS.search(text):
            return network_hint()
        if _LOOP_RUNS.search(text):
            return "an event loop runs already in this cell: write `await f()`, or asyncio.run(f())"
        if type_name(type(error)) == "BdbQuit":
            return "there is no terminal to debug from; print what you want to see"
        return ""


def _visible_names(step: ErrorFrame) -> Iterable[str]:
    code = step.frame.f_code
    scopes: tuple[Mapping[str, object], ...] = (step.frame.f_globals, vars(builtins))
    yield from (*code.co_varnames, *code.co_freevars)
    for scope in scopes:
        yield from (name for name in list(scope) if type(name) is str and name[:1] != "_")


def _nearest(name: str, candidates: Iterable[str]) -> str:
    found = nearest(name, candidates)
    return f"nearest: {', '.join(found)}" if found else ""
