"""What to try instead, for errors that a look at the namespace can answer. One short text, or none."""

from __future__ import annotations

import ast
import builtins
import errno
import re
import sys
from collections.abc import Callable, Iterable, Mapping

from cenote_worker.in_jail.bounded import bounded_str, shorten, type_name
from cenote_worker.in_jail.callables import signature_text
from cenote_worker.in_jail.cells import COMPILER, CellCompiler
from cenote_worker.in_jail.exhaustion import compiling_hint, limit_hint, limit_reached
from cenote_worker.in_jail.frames import Step, raised_in, steps_of
from cenote_worker.in_jail.hints_files import file_hint, program_hint
from cenote_worker.in_jail.hints_keys import key_hint
from cenote_worker.in_jail.hints_modules import import_hint, known_import
from cenote_worker.in_jail.nearest import nearest
from cenote_worker.in_jail.network import network_hint
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.resolution import FailedExpression
from cenote_worker.in_jail.shared_names import shared_names
from cenote_worker.in_jail.terminal import NOBODY

__builtins__ = BUILTINS

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

_name_of = NameError.__dict__["name"].__get__
_attribute_of = AttributeError.__dict__["name"].__get__
_object_of = AttributeError.__dict__["obj"].__get__
_filename_of = OSError.__dict__["filename"].__get__
_errno_of = OSError.__dict__["errno"].__get__
_modules = sys.modules


class Hints:
    """Finds hints for errors of cells of one compiler. Never raises, and runs no user code but `__dir__`."""

    def __init__(self, compiler: CellCompiler) -> None:
        self._compiler = compiler
        self._finders: tuple[tuple[type[BaseException], Callable[[BaseException, list[Step]], str]], ...] = (
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

    def _name(self, error: BaseException, steps: list[Step]) -> str:
        name = _name_of(error)
        if type(name) is not str:
            match = _UNKNOWN_NAME.search(bounded_str(error, 300))
            name = (match[1] or match[2]) if match else None
        if not name or not steps:
            return ""
        if statement := known_import(name):
            return statement
        if name in shared_names():
            return f"it is one of the shared names: shared.{name}"
        return _nearest(name, _visible_names(steps[-1]))

    def _attribute(self, error: BaseException, _steps: list[Step]) -> str:
        name, obj = _attribute_of(error), _object_of(error)
        if type(name) is not str:
            return ""
        if type_name(type(obj)) == "coroutine":
            return "a coroutine has no result yet: write `await` before the call"
        names = (member for member in dir(obj) if type(member) is str)
        return _nearest(name, names if name[:1] == "_" else (word for word in names if word[:1] != "_"))

    def _key(self, error: BaseException, steps: list[Step]) -> str:
        return key_hint(error, steps, self._compiler)

    def _type(self, error: BaseException, steps: list[Step]) -> str:
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

    def _end_of_input(self, error: BaseException, _steps: list[Step]) -> str:
        text = bounded_str(error, 500)
        # What a library says of a file that ends too soon has nothing to do with a terminal.
        return f"there is no terminal: {NOBODY}" if not text or "reading a line" in text else ""

    def _system(self, error: BaseException, steps: list[Step]) -> str:
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

    def _asked_of_socket(self, error: BaseException, steps: list[Step]) -> str:
        """`bind` or `connect`, if that was refused: by the cell's own call, or that of a library."""
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

    def _by_text(self, error: BaseException, _steps: list[Step]) -> str:
        text = bounded_str(error, 2_000)
        if _NETWORK_WORDS.search(text):
            return network_hint()
        if _LOOP_RUNS.search(text):
            return "an event loop runs already in this cell: write `await f()`, or asyncio.run(f())"
        if type_name(type(error)) == "BdbQuit":
            return "there is no terminal to debug from; print what you want to see"
        return ""


def _visible_names(step: Step) -> Iterable[str]:
    code = step.frame.f_code
    scopes: tuple[Mapping[str, object], ...] = (step.frame.f_globals, vars(builtins))
    yield from (*code.co_varnames, *code.co_freevars)
    for scope in scopes:
        yield from (name for name in list(scope) if type(name) is str and name[:1] != "_")


def _nearest(name: str, candidates: Iterable[str]) -> str:
    found = nearest(name, candidates)
    return f"nearest: {', '.join(found)}" if found else ""
