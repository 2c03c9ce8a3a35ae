"""Processes that cells start: commands of a shell (`!ls`, `%%bash`) and `multiprocessing`.

A process of the start methods spawn and forkserver imports what it receives. Functions and classes of cells are in no
file that it could import, so they are sent by value. A pool whose worker has died waits forever in plain Python for
that worker's tasks; here its calls fail.
"""

from __future__ import annotations

import ast
import codecs
import os
import re
import signal
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final

import cloudpickle

from cenote_worker.jail.rendering.bounded_text import bounded_str
from cenote_worker.process.pristine import BUILTINS

if TYPE_CHECKING:
    from subprocess import Popen


__builtins__ = BUILTINS

_get_handler, _set_handler = signal.getsignal, signal.signal
_CHUNK = 64 * 1024
_REFERENCE = re.compile(
    r"(?<![\\$])\{([A-Za-z_]\w*)\}|(?<!\\)\$([A-Za-z_]\w*)|(?<![\\${])\{([^\s{}\\][^{}\\\n]*)\}"
)
_OF_SHELLS: Final = (ast.Tuple, ast.Set, ast.Dict)
"""What braces around several words are to a shell, and to programs that a command gives on its line."""


def expand(command: str, names: Mapping[str, object], *, expressions: bool = False) -> str:
    """Substitutes values for `{name}` and `$name` if there is such a name; the shell handles the rest.

    expressions: those in braces too, written as in an f-string, that have one of the names and raise nothing.
    """

    def value(match: re.Match[str]) -> str:
        if match[3]:
            found = _evaluated(match[3], names) if expressions else None
            return match[0] if found is None else bounded_str(found, 100_000)
        name = match[1] or match[2]
        return bounded_str(names[name], 100_000) if name in names else match[0]

    return _REFERENCE.sub(value, command)


def _evaluated(field: str, names: Mapping[str, object]) -> str | None:
    """The text of a field of an f-string. None where it is not meant as one, or fails."""
    source = f'f"""{{{field}}}"""'
    try:
        (part,) = ast.parse(source, mode="eval").body.values  # type: ignore[attr-defined]
        used = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
        if isinstance(part.value, _OF_SHELLS) or used.isdisjoint(names):
            return None
        text = eval(source, {}, names)
    except Exception:
        return None
    return str(text)


def run_shell(command: str, shell: str = "sh") -> int:
    """Runs a command and prints its output as it comes, stderr included. Returns the exit status.

    A command that ends in `&` is left running in the background.
    """
    from subprocess import DEVNULL, PIPE, STDOUT, Popen  # 10 ms, and few cells start a process

    sys.stdout.flush()
    if command.rstrip().endswith("&") and not command.rstrip().endswith("&&"):
        Popen([shell, "-c", command], stdin=DEVNULL, start_new_session=True)
        return 0
    with _started([shell, "-c", command], stdin=DEVNULL, stdout=PIPE, stderr=STDOUT) as process:
        assert process.stdout is not None
        decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        while data := os.read(process.stdout.fileno(), _CHUNK):
            sys.stdout.write(decoder.decode(data))
        return process.wait()


def run_program(program: str, arguments: list[str], source: str) -> tuple[int, str, str]:
    """Runs a program that reads its source from stdin. Returns the exit status and both output streams."""
    from subprocess import PIPE

    with _started([program, *arguments], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        streams = process.communicate(source.encode("utf-8", "surrogateescape"))
        out, err = (text.decode("utf-8", "backslashreplace") for text in streams)
        return process.returncode, out, err


def shell_lines(command: str) -> tuple[int, list[str]]:
    """The exit status of a command, and the lines that it prints, stderr included."""
    from subprocess import DEVNULL, PIPE, STDOUT

    with _started(["sh", "-c", command], stdin=DEVNULL, stdout=PIPE, stderr=STDOUT) as process:
        out, _ = process.communicate()
        return process.returncode, out.decode("utf-8", "backslashreplace").splitlines()


@contextmanager
def _started(command: list[str], **streams: int) -> Iterator[Popen[bytes]]:
    """A process of a session of its own. An interrupt ends it, with everything that it has started."""
    from subprocess import Popen

    interrupts = _HeldInterrupts()
    process: Popen[bytes] | None = None
    try:
        process = Popen(command, start_new_session=True, **streams)  # type: ignore[call-overload]
        interrupts.release()
        yield process
    except BaseException:
        if process is not None and process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise
    finally:
        interrupts.release()
        for stream in (process.stdin, process.stdout, process.stderr) if process is not None else ():
            if stream is not None:
                stream.close()


class _HeldInterrupts:
    """An interrupt waits until `release`: between a fork and its return, nothing knows the new process."""

    def __init__(self) -> None:
        self._came = False
        self._handler = _get_handler(signal.SIGINT)
        # Only the main thread is interrupted, and only it may set a handler.
        self._holds = self._handler is not None and current_thread() is main_thread()
        if self._holds:
            _set_handler(signal.SIGINT, self._note)

    def _note(self, *_: object) -> None:
        self._came = True

    def release(self) -> None:
        """Raises KeyboardInterrupt, or does what the handler does, if one came. A second call does nothing."""
        if self._holds:
            self._holds = False
            _set_handler(signal.SIGINT, self._handler)
            if self._came:
                signal.raise_signal(signal.SIGINT)


_FRESH: Final = ("spawn", "forkserver")
_MAIN: Final = "__main__"
_modules = sys.modules


def send_definitions(reduction: Any) -> None:
    """Changes the module `multiprocessing.reduction`."""
    reduction.ForkingPickler.reducer_override = _reduced


def fail_with_workers(pools: Any) -> None:
    """Changes the module `multiprocessing.pool`."""
    handle = pools.Pool.__dict__["_handle_workers"].__func__
    join = pools.Pool._join_exited_workers
    waiting: dict[int, MutableMapping[int, Any]] = {}

    def handle_workers(cls: Any, cache: Any, taskqueue: Any, ctx: Any, process: Any, count: int, pool: Any,
                       *rest: Any) -> None:  # fmt: skip
        waiting[id(pool)] = cache
        try:
            handle(cls, cache, taskqueue, ctx, process, count, pool, *rest)
        finally:
            del waiting[id(pool)]

    def join_exited_workers(pool: list[Any]) -> Any:
        before = list(pool)
        joined = join(pool)
        failed = [worker.exitcode for worker in before if worker not in pool and worker.exitcode]
        if failed and (cache := waiting.get(id(pool))):
            _fail(cache.values(), _modules["multiprocessing"].ProcessError(_told(failed[0])))
        return joined

    pools.Pool._handle_workers = classmethod(handle_workers)
    pools.Pool._join_exited_workers = staticmethod(join_exited_workers)


def _told(exitcode: int) -> str:
    how = f"was ended by signal {-exitcode}" if exitcode < 0 else f"ended with status {exitcode}"
    return (
        f"a worker process of the pool {how}, and what it had taken is lost; stderr says why, if it raised. "
        "Use one process to find the cause"
    )


def _fail(results: Iterable[Any], error: Exception) -> None:
    """Fails every waiting call: which of them the worker had taken is not known."""
    for result in list(results):
        if hasattr(result, "_number_left"):
            result._number_left = 1  # the call ends now, not when all its parts are done
        result._set(getattr(result, "_index", 0), (False, error))


def restored(data: bytes) -> object:
    """Rebuilds a definition in the other process. Classes get their names there, so that returned values find
    them."""
    found: Any = cloudpickle.loads(data)
    names = vars(_modules[_MAIN])
    for each in [found, *getattr(found, "__globals__", {}).values()]:
        if isinstance(each, type) and each.__module__ == _MAIN:
            names.setdefault(each.__qualname__, each)
    return found


def _reduced(_pickler: object, obj: Any) -> Any:
    if not isinstance(obj, (types.FunctionType, type)) or getattr(obj, "__module__", None) != _MAIN:
        return NotImplemented
    if not _goes_to_a_fresh_process():
        return NotImplemented
    restore: Callable[[bytes], object] = restored
    return restore, (cloudpickle.dumps(obj),)


def _goes_to_a_fresh_process() -> bool:
    """Whether data may be sent to a fresh process: it may go to any process that this one has started."""
    being_started = _modules["multiprocessing.context"].get_spawning_popen()
    if being_started is not None:
        return getattr(being_started, "method", None) in _FRESH
    children = list(_modules["multiprocessing.process"]._children)
    return any(getattr(child, "_start_method", None) in _FRESH for child in children)
