"""What the interpreter reports to its audit hook while a step runs: files opened, processes started, frames taken.

A hook cannot be removed, so there is one per process; its cost is not measurable unless there is a listener. Each
call of `id` is an event as well, and some imports make tens of thousands: events that no listener uses are dropped
first.
"""

from __future__ import annotations

import _thread
import fcntl
import os
import re
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Final

from cenote_worker.jail.tracking.code.bytecode_effects import looked_up
from cenote_worker.jail.tracking.code.sql_queries import names_in, outlives_its_call, text_asked_at
from cenote_worker.jail.tracking.files.file_locks import HELD
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_WRITING_LETTERS: Final = frozenset("wax+")
_getframe, _get_ident, _add_hook = sys._getframe, _thread.get_ident, sys.addaudithook
_modules = sys.modules
_readlink, _fspath = os.readlink, os.fspath
_MANY: Final = 5_000
"""Paths of one step that are recorded; with more, the step may have touched any file."""

_NOWHERE: Final = -1
_CHANGING: Final = {
    "os.remove": ((0, 1),), "os.rename": ((0, 2), (1, 3)), "os.mkdir": ((0, 2),), "os.rmdir": ((0, 1),),
    "os.link": ((0, 2), (1, 3)), "os.symlink": ((0, 2), (1, 2)), "os.truncate": ((0, _NOWHERE),),
    "os.chmod": ((0, 2),), "os.utime": ((0, 3),), "os.setxattr": ((0, _NOWHERE),), "shutil.rmtree": ((0, 1),),
    "shutil.move": ((0, _NOWHERE), (1, _NOWHERE)), "shutil.copyfile": ((0, _NOWHERE), (1, _NOWHERE)),
    "shutil.copytree": ((0, _NOWHERE), (1, _NOWHERE)), "shutil.unpack_archive": ((0, _NOWHERE), (1, _NOWHERE)),
}  # fmt: skip
"""Which arguments are paths, and which are descriptors of folders that these are relative to."""

_LISTING: Final = frozenset(
    ("os.listdir", "os.scandir", "glob.glob", "pathlib.Path.glob", "os.walk", "os.fwalk")
)
_PROCESSES: Final = frozenset(
    (
        "subprocess.Popen",
        "os.system",
        "os.posix_spawn",
        "os.spawn",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "pty.spawn",
    )
)
_REFLECTING: Final = frozenset(
    (
        "gc.get_objects",
        "gc.get_referrers",
        "sys._current_frames",
        "sys.settrace",
        "exec",
        "os.putenv",
        "os.unsetenv",
    )
)
"""`exec` is the event of `exec` and `eval`, by whatever name they were called."""

_REMOTE: Final = frozenset(("socket.connect", "socket.bind", "socket.sendto"))
_OUTWARD: Final = frozenset(
    ("os.kill", "os.killpg", "signal.pthread_kill", "sqlite3.connect", "os.chown", "os.removexattr", "os.lockf",
     "socket.sendmsg", "shutil.chown", "shutil.copymode", "shutil.copystat")
)  # fmt: skip
"""Other events that reach beyond the process."""

_LOCKING: Final = frozenset(("fcntl.flock", "fcntl.lockf", "fcntl.fcntl"))
_LOCKS: Final = frozenset((fcntl.F_SETLK, fcntl.F_SETLKW, fcntl.F_OFD_SETLK, fcntl.F_OFD_SETLKW))
"""Commands of `fcntl.fcntl` that take a lock."""

_USED: Final = frozenset(
    ("open", "sys._getframe", "import", "pickle.find_class",
     *_CHANGING, *_LISTING, *_PROCESSES, *_REFLECTING, *_REMOTE, *_OUTWARD, *_LOCKING)
)  # fmt: skip
"""Events that a listener gets."""

_IMPORTING: Final = frozenset(("_frozen_importlib_external", "importlib._bootstrap_external"))
_HARMLESS: Final = frozenset(
    ("collections", "typing", "enum", "logging", "dataclasses", "abc", "functools", "warnings",
     "pydantic._internal._generics")
)  # fmt: skip
"""Modules that look at their caller's frame only for the name of its module."""

_OF_POLARS: Final = "_get_stack_locals"
"""The function in Polars that searches frames for the names in a query."""

_OF_DUCKDB: Final = "inspect"
"""The module from which DuckDB gets the frame that it searches for the names in a query."""

_WORD: Final = re.compile(r"[^\W\d]\w*")


class AuditRecord:
    """What happened since it was made. frames: a frame of the user's code was handed out. surveyed: `inspect` was
    asked for one, as DuckDB does before it looks up any name. scanned: DuckDB did that for a query in the user's
    code, which may lead to names in a view. sought: modules that were looked for on the import path. rewritten: files
    that were truncated first. named: modules with the names in them that pickles and other texts mentioned.
    unpickled: modules with the names that pickles mentioned. unplaced: a file was opened that may be in any folder,
    since the folder of its relative path is unknown. descriptors: one was opened by its descriptor."""

    def __init__(self, namespace: dict[str, object], parts: tuple[CodeType, ...] = ()) -> None:
        """parts: the code of the step itself."""
        self._namespace = namespace
        self._parts = parts
        self.read: set[str] = set()
        self.changed: set[str] = set()
        self.rewritten: set[str] = set()
        self.listed: set[str] = set()
        self.processes = False
        self.unplaced = False
        self.descriptors = False
        self.frames = False
        self.surveyed = False
        self.scanned = False
        self.reflected: set[str] = set()
        self.remote = False
        self.locks = False
        self.sought: set[str] = set()
        self.named: set[tuple[str, str]] = set()
        self.unpickled: set[tuple[str, str]] = set()

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            self._open(arguments)
        elif event == "sys._getframe":
            self._frame(arguments)
        elif event in _CHANGING:
            self._change(_CHANGING[event], arguments)
        elif event in _LISTING:
            self._list(arguments)
        elif event in _PROCESSES:
            self.processes = True
        elif event in _REFLECTING:
            self._reflect(event, arguments)
        elif event == "import":
            self._note(self.sought, arguments[0])
        elif event == "pickle.find_class":
            home, what = str(arguments[0]), str(arguments[1])
            self.unpickled.add((home, what))
            self.named.add((home, what.partition(".")[0]))
        elif event == "sqlite3.connect" and "cache=shared" in str(arguments[0]):
            self.reflected.add(event)  # it may be in memory, and any step may have another connection to it
        elif event in _REMOTE:
            self.remote = True
        elif event in _LOCKING and (event != "fcntl.fcntl" or arguments[1] in _LOCKS):
            self.locks = True
            HELD.ask()

    def _open(self, arguments: tuple[object, ...]) -> None:
        path, mode, flags = arguments
        self.descriptors = self.descriptors or type(path) is int
        if mode is None and _is_relative(path) and _asking().f_globals.get("__name__") != "shutil":
            self.unplaced = True  # by `os.open`; `shutil` removes such files, and reports that
        bits = flags if type(flags) is int else 0
        letters = mode if type(mode) is str else ""
        if bits & _WRITING or not _WRITING_LETTERS.isdisjoint(letters):
            self._note(self.changed, path)
        if bits & os.O_TRUNC or letters[:1] == "w":  # a file that is written anew is not read
            self._note(self.rewritten, path)
        else:
            self._note(self.read, path)

    def _change(self, places: tuple[tuple[int, int], ...], arguments: tuple[object, ...]) -> None:
        for place, folder in places:
            path = arguments[place]
            if folder != _NOWHERE and type(descriptor := arguments[folder]) is int and descriptor >= 0:
                path = self._within(descriptor, path)
            elif type(path) is int:
                path = self._within(path, "")
            self._note(self.changed, path)
            self._note(self.read, path)

    def _within(self, descriptor: int, path: object) -> object:
        try:
            folder = _readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            self.processes = True  # the folder is unknown
            return path
        text = _text_of(path)
        return text if text[:1] == "/" else f"{folder}/{text}"

    def _note(self, paths: set[str], *given: object) -> None:
        for path in given:
            if isinstance(path, bytes | os.PathLike):
                path = _text_of(path)
            if type(path) is str and len(paths) < _MANY:
                paths.add(path)
            elif type(path) is str:
                self.processes = True  # and they may have done anything to files

    def _list(self, arguments: tuple[object, ...]) -> None:
        if _asking().f_globals.get("__name__") not in _IMPORTING:
            path = arguments[0] if arguments else "."
            self._note(self.listed, path if type(path) in (str, bytes) else ".")

    def _reflect(self, event: str, arguments: tuple[object, ...]) -> None:
        """Records reflection by the user's code: libraries reflect on themselves, unless they run a text that imports
        the user's names, or mentions them."""
        code = arguments[0] if arguments else None
        text = code if type(code) is CodeType and _is_text(code) else None
        if _asking().f_globals is self._namespace or (text is not None and _imports_names(text)):
            self.reflected.add(event)
        elif text is not None and not any(text is part for part in self._parts):
            self.named |= {("__main__", word) for word in looked_up(text)}

    def _frame(self, arguments: tuple[object, ...]) -> None:
        frame = arguments[0] if arguments else None
        if type(frame) is not FrameType:
            return
        asked = _asking().f_globals.get("__name__")
        self.surveyed = self.surveyed or asked == _OF_DUCKDB
        if frame.f_globals is not self._namespace:
            if frame.f_code.co_name == _OF_POLARS and _library(frame) == "polars":
                self._look_up(frame.f_locals.get("named"))
            return
        if asked == _OF_DUCKDB and (query := _query_at(frame)) is not None:
            self.named |= {("__main__", word) for word in names_in(query)}
            self.scanned = True
            return
        text = _TEXTS[asked](_asking()) if type(asked) is str and asked in _TEXTS else None
        if text is not None:
            self.named |= {("__main__", word) for word in _WORD.findall(text)}
        elif type(asked) is not str or not {asked, asked.partition(".")[0]} & _HARMLESS:
            self.frames = True

    def _look_up(self, named: object) -> None:
        """A library searches the frames of all its callers, for these names or for any."""
        if isinstance(named, set | frozenset | list | tuple | dict):
            self.named |= {("__main__", str(each)) for each in named}
        else:
            self.frames = True


def reaches_out(event: str, arguments: tuple[object, ...]) -> bool:
    """Whether the event may change files, start or signal a process, or communicate with another one."""
    if event == "open":
        _, mode, flags = arguments
        bits = flags if type(flags) is int else 0
        letters = mode if type(mode) is str else ""
        return bool(bits & _WRITING) or not _WRITING_LETTERS.isdisjoint(letters)
    return event in _CHANGING or event in _PROCESSES or event in _REMOTE or event in _OUTWARD


def _is_relative(path: object) -> bool:
    return isinstance(path, str | bytes | os.PathLike) and _text_of(path)[:1] != "/"


def _text_of(path: object) -> str:
    """Empty for what is no path. Not by `os.fsdecode`, whose builtins a cell may have replaced."""
    if not isinstance(path, str | bytes | os.PathLike):
        return ""
    plain = _fspath(path)
    return plain.decode(errors="surrogateescape") if isinstance(plain, bytes) else plain


def _is_text(code: CodeType) -> bool:
    """Whether the code was compiled from a text, as no module is."""
    place = code.co_filename
    return place[:1] == "<" and place[:8] != "<frozen "


def _imports_names(code: CodeType) -> bool:
    """Whether the code imports the user's names."""
    inner = [constant for constant in code.co_consts if type(constant) is CodeType]
    return "__main__" in code.co_names or any(map(_imports_names, inner))


def _query_at(frame: FrameType) -> str | None:
    """The constant query that the frame is passing to DuckDB: `currentframe` itself takes no text, so it is not the
    call at that place. None for any other call, and for a query that creates an object which looks up names later."""
    query = text_asked_at(frame.f_code, frame.f_lasti) if "duckdb" in _modules else None
    return None if query is None or outlives_its_call(query) else query


def _expression(frame: FrameType | None) -> str | None:
    """The text that pandas evaluates."""
    found = _local(frame, "eval", "expr")
    return found if type(found) is str else None


def _annotations(frame: FrameType | None) -> str | None:
    """The annotations of a model that is being made. Those that are classes name nothing."""
    body = _local(frame, "__new__", "namespace")
    found = body.get("__annotations__") if isinstance(body, dict) else None
    if type(found) is not dict:
        return None
    return " ".join(repr(each) for each in found.values() if not isinstance(each, type))


def _local(frame: FrameType | None, function: str, variable: str) -> object:
    """A variable of a function of the calling library."""
    library = _library(frame)
    while frame is not None and _library(frame) == library:
        if frame.f_code.co_name == function:
            return frame.f_locals.get(variable)
        frame = frame.f_back
    return None


def _library(frame: FrameType | None) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0] if frame is not None else ""


_TEXTS: Final[dict[str, Callable[[FrameType | None], str | None]]] = {
    "pandas.core.computation.scope": _expression,
    "pydantic._internal._typing_extra": _annotations,
}
"""By module that takes a frame to look up names of a text there: a function that gives the text; None if unknown."""


def _asking() -> FrameType:
    """The frame in which the event was raised: above this function, a method, `__call__` and the hook."""
    return _getframe(4)


_listener: Callable[[str, tuple[object, ...]], None] | None = None
_installed = False
_hearing = 0
"""The thread in which the listener runs, as `threading.get_ident` gives it."""


def listen(listener: Callable[[str, tuple[object, ...]], None] | None) -> None:
    """Sends all further events that it can use to the listener, or nowhere."""
    global _listener, _installed
    _listener = listener
    if not _installed:
        _installed = True
        _add_hook(_hook)


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    global _listener, _hearing
    listener = _listener
    if listener is None or event not in _USED:
        return
    _listener = None  # events of the listener itself are ignored
    _hearing = _get_ident()
    try:
        listener(event, arguments)
    finally:
        _listener, _hearing = listener, 0


def is_heard_by(ident: int) -> bool:
    """Whether this thread's current events come from the listener."""
    return _hearing == ident
