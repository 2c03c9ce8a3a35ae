"""Processes beside a namespace, without a face: what is asked, what has come of it, what was read of it meanwhile."""

from __future__ import annotations

import os
import shlex
import signal as signals
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy, check_seconds
from cenote_worker.execution.programs import KeptOutput, ProgramEnd, ProgramOrder, ProgramSpec
from cenote_worker.execution.results import StreamName
from cenote_worker.process.threads import Backlog
from cenote_worker.supervisor.program import ProgramHandle

Command = str | Sequence[str]
"""A text for `sh -c`, or a program and its arguments."""

Input = bytes | str | None
Folder = str | os.PathLike[str] | None

Terminal = bool | tuple[int, int]
USUAL_SIZE: Final = (24, 80)

BACKLOG: Final = 2**20
"""Bytes of output that may wait for their reader before the process is made to wait."""

MAX_SHOWN: Final = 4_000
"""Characters of a command that its step shows."""

MOST_SIGNALS: Final = 64
MOST_CELLS: Final = 1_000
"""Rows, and columns, of a terminal."""


@dataclass(frozen=True)
class ProcessResult:
    """What has come of a process.

    exit_code: None where it did not exit. stdout, stderr: its output as text, with U+FFFD for what is no UTF-8; the
    `_bytes` have it as it was. timed_out: whether its time was over. killed_by: what ended it, if it did not exit:
    `signal 11`, `timeout`, `kill` for a call of `kill`, `memory` where the runtime came to its limit, `rollback` or
    `worker` where the runtime went back to a state from before it began, `jail` where the runtime ended. duration:
    seconds. omitted: bytes of output that are not here, from the middle of a stream that was too long.
    """

    exit_code: int | None
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    killed_by: str | None = None
    duration: float = 0.0
    omitted: int = 0
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""

    @property
    def success(self) -> bool:
        """Whether it has exited with 0."""
        return self.exit_code == 0


class ProcessFeed:
    """The listener of one process: its output until it is read, and its end. For any threads.

    Without a reader (`keep` is given) it keeps that much of each stream, and the process never waits.
    """

    def __init__(self, keep: int | None = None) -> None:
        self._lock = threading.Lock()
        self._kept = None if keep is None else {"stdout": KeptOutput(keep), "stderr": KeptOutput(keep)}
        self._waiting: dict[StreamName, deque[tuple[int, bytes]]] = {"stdout": deque(), "stderr": deque()}
        self._number = 0
        self._backlog = Backlog(BACKLOG)
        self._wake: Callable[[], None] | None = None
        self.pid = 0
        self.outcome: ProgramEnd | Exception | None = None

    def wakes(self, wake: Callable[[], None] | None) -> None:
        """wake: called, on any thread, whenever there is news."""
        with self._lock:
            self._wake = wake

    # -- as a listener --

    def started(self, pid: int) -> None:
        with self._lock:
            self.pid = pid
        self._news()

    def output(self, stream: StreamName, data: bytes) -> bool:
        with self._lock:
            if self._kept is not None:
                self._kept[stream].add(data)
                return True
            self._number += 1
            self._waiting[stream].append((self._number, data))
            goes_on = self._backlog.add(len(data))
        self._news()
        return goes_on

    def ended(self, outcome: ProgramEnd | Exception) -> None:
        with self._lock:
            self.outcome = outcome
        self._news()

    def _news(self) -> None:
        with self._lock:
            wake = self._wake
        if wake is not None:
            wake()

    # -- for its reader --

    def take(self, *streams: StreamName) -> tuple[tuple[StreamName, bytes] | None, bool]:
        """What came first of these streams, None where nothing waits; and whether the process may write again."""
        with self._lock:
            there = [stream for stream in streams if self._waiting[stream]]
            if not there:
                return None, False
            stream = min(there, key=lambda each: self._waiting[each][0][0])
            _, data = self._waiting[stream].popleft()
            return (stream, data), self._backlog.take(len(data))

    def has(self, *streams: StreamName) -> bool:
        """Whether `take` would give anything."""
        return any(self._waiting[stream] for stream in streams)

    def kept(self) -> dict[StreamName, KeptOutput]:
        assert self._kept is not None, "a feed with a reader keeps nothing"
        return {"stdout": self._kept["stdout"], "stderr": self._kept["stderr"]}


def result_of(outcome: ProgramEnd | Exception, kept: Mapping[StreamName, KeptOutput]) -> ProcessResult:
    """Raises what it came to where the process was never begun."""
    if isinstance(outcome, Exception):
        raise outcome
    out, err = kept["stdout"].whole(), kept["stderr"].whole()
    return ProcessResult(
        exit_code=outcome.exit_code,
        stdout=out.decode(errors="replace"),
        stderr=err.decode(errors="replace"),
        timed_out=outcome.killed_by == "timeout",
        killed_by=outcome.killed_by or None,
        duration=outcome.duration,
        omitted=kept["stdout"].omitted + kept["stderr"].omitted,
        stdout_bytes=out,
        stderr_bytes=err,
    )


# -- what is asked ----------------------------------------------------------------------------------------


def order(
    command: Command,
    *,
    env: Mapping[str, str] | None,
    cwd: Folder,
    timeout: float | None,
    has_input: bool,
    pty: Terminal = False,
) -> ProgramOrder:
    """pty: whether its streams are to be a terminal, or the rows and columns of that. Raises UsageError."""
    check_seconds(timeout, "a timeout")
    rows, columns = _terminal(pty)
    spec = ProgramSpec(argv=_argv(command), env=_env(env), cwd=_folder(cwd), terminal=pty is not False)
    shown = command if isinstance(command, str) else shlex.join(spec.argv)
    return ProgramOrder(
        spec=spec,
        has_input=has_input,
        timeout=timeout,
        rows=rows,
        columns=columns,
        shown=f"!{shown[:MAX_SHOWN]}",
    )


def most_output(asked: int | None, policy: SandboxPolicy) -> int:
    """Bytes of each stream that are kept. Raises UsageError."""
    if asked is None:
        return policy.output_bytes
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 0:
        raise UsageError(f"max_output is a number of bytes, not {asked!r:.100}")
    return min(asked, policy.output_bytes)


def input_bytes(data: bytes | str) -> bytes:
    """Text as UTF-8. Raises UsageError."""
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError:
            raise UsageError(
                "the input has a lone surrogate; encode it yourself, and give the bytes"
            ) from None
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise UsageError(f"input is bytes or text, not {type(data).__name__}")


def signal_number(asked: int | str) -> int:
    """Raises UsageError."""
    if isinstance(asked, str):
        name = asked.upper()
        try:
            return signals.Signals[name if name.startswith("SIG") else f"SIG{name}"]
        except KeyError:
            raise UsageError(f"no signal is called {asked!r:.100}; such as 'TERM' or 15") from None
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 < asked <= MOST_SIGNALS:
        raise UsageError(f"a signal is a number from 1 to {MOST_SIGNALS}, or a name, not {asked!r:.100}")
    return int(asked)


def resize(handle: ProgramHandle, rows: int, columns: int) -> None:
    """Raises UsageError."""
    handle.resize(*_size(rows, columns))


def _terminal(pty: Terminal) -> tuple[int, int]:
    if isinstance(pty, bool):
        return USUAL_SIZE
    if not isinstance(pty, tuple | list) or len(pty) != 2:
        raise UsageError(f"pty is True, or the rows and columns of the terminal, not {pty!r:.100}")
    return _size(*pty)


def _size(rows: int, columns: int) -> tuple[int, int]:
    for number in (rows, columns):
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= MOST_CELLS:
            raise UsageError(f"a terminal has 1 to {MOST_CELLS} rows and columns, not {number!r:.100}")
    return rows, columns


def _argv(command: Command) -> tuple[str, ...]:
    if isinstance(command, str):
        return "sh", "-c", _text(command, "a command")
    if not isinstance(command, Sequence) or isinstance(command, bytes | bytearray) or not command:
        raise UsageError(
            f"a command is a text for the shell, or a list of a program and its arguments, not {command!r:.100}"
        )
    argv = tuple(_text(each, "an argument") for each in command)
    if not argv[0]:
        raise UsageError("the first argument names the program, and is empty")
    return argv


def _env(env: Mapping[str, str] | None) -> dict[str, str]:
    if env is not None and not isinstance(env, Mapping):
        raise UsageError(f"env is a dict of names and texts, not {type(env).__name__}")
    checked = {_text(name, "a variable"): _text(value, "a variable") for name, value in (env or {}).items()}
    for name in checked:
        if not name or "=" in name:
            raise UsageError(f"a variable's name is not empty and has no '=': {name!r:.100}")
    return checked


def _folder(cwd: Folder) -> str:
    if cwd is None:
        return ""
    if not isinstance(cwd, str | os.PathLike):
        raise UsageError(f"cwd is a path in the jail, not {type(cwd).__name__}")
    return _text(os.fspath(cwd), "cwd")


def _text(text: object, what: str) -> str:
    if not isinstance(text, str):
        raise UsageError(f"{what} is a text, not {type(text).__name__}")
    if "\0" in text:
        raise UsageError(f"{what} has a zero byte, which no program can be given")
    return text
