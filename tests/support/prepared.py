"""Python programs that are started by forking a process that has imported their modules: otherwise each start costs
half a second of CPU time.

A program starts with separate arguments, environment, folder and streams, and ends like any other, with its
registered exit functions. Options for its start alone, such as those of the interpreter, do not reach it.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
MOST = 1 << 17
"""Bytes of a message: arguments and environment."""


class Started:
    """A process of such a program, with the interface of one of `subprocess`."""

    def __init__(self, pid: int, handle: int, ended: int) -> None:
        """handle: a pidfd. ended: a pipe that delivers its exit status."""
        self.pid = pid
        self.returncode: int | None = None
        self._handle = handle
        self._ended = ended

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutError."""
        status = self._look(timeout)
        if status is None:
            raise TimeoutError(f"process {self.pid} did not end in {timeout} s")
        return status

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            self.returncode = int(os.read(self._ended, 16))
            os.close(self._ended)
            os.close(self._handle)
        return self.returncode


class Prepared:
    """Starts one program."""

    def __init__(self, module: str, *imported: str) -> None:
        """module: its `main` is called, with the arguments as texts. imported: modules that it would import later."""
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.prepared", str(theirs.fileno()), module, *imported],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path},
            )

    def start(
        self,
        arguments: tuple[str, ...],
        streams: tuple[int, int, int],
        environment: Mapping[str, str],
        folder: Path,
    ) -> Started:
        """streams: descriptors, which stay the caller's."""
        said, ended = os.pipe()
        message = {"arguments": arguments, "environment": dict(environment), "folder": str(folder)}
        try:
            socket.send_fds(self._line, [json.dumps(message).encode()], [*streams, ended])
        finally:
            os.close(ended)
        answer, handles, _, _ = socket.recv_fds(self._line, 64, 1)
        return Started(int(answer), handles[0], said)

    def close(self) -> None:
        """Started programs continue."""
        self._line.close()
        self._process.wait(PATIENCE)


class Server:
    """The process that forks. A child leaves its loop and runs the program as if it had started that way."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._children: dict[int, tuple[int, int]] = {}
        """Their pids and the pipes that wait for their ends, by pidfd."""

    def serve(self) -> list[str] | None:
        """In a child: returns its arguments. None when the requests have ended."""
        while True:
            for ready in select.select([self._line, *self._children], [], [])[0]:
                if ready is not self._line:
                    self._tell(ready)
                    continue
                message, given, _, _ = socket.recv_fds(self._line, MOST, 4)
                if not message:
                    return None
                if (arguments := self._fork(message, given)) is not None:
                    return arguments

    def _fork(self, message: bytes, given: list[int]) -> list[str] | None:
        pid = os.fork()
        if pid == 0:
            return self._begin(json.loads(message), given)
        *streams, ended = given
        for stream in streams:
            os.close(stream)
        handle = os.pidfd_open(pid)
        self._children[handle] = pid, ended
        socket.send_fds(self._line, [str(pid).encode()], [handle])
        return None

    def _begin(self, message: dict[str, object], given: list[int]) -> list[str]:
        for place, stream in enumerate(given[:3]):
            os.dup2(stream, place)
        for descriptor in (*given, *self._children, *(ended for _, ended in self._children.values())):
            os.close(descriptor)
        self._line.close()
        os.environ.clear()
        os.environ.update(message["environment"])  # type: ignore[call-overload]
        os.chdir(str(message["folder"]))
        return list(message["arguments"])  # type: ignore[call-overload]

    def _tell(self, handle: int) -> None:
        pid, ended = self._children.pop(handle)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(ended, str(status).encode())
        os.close(ended)
        os.close(handle)


def main(line: str, module: str, *imported: str) -> int:
    program = importlib.import_module(module)
    for name in imported:
        importlib.import_module(name)
    arguments = Server(socket.socket(fileno=int(line))).serve()
    if arguments is None:
        return 0
    sys.argv[1:] = arguments
    return int(program.main(*arguments) or 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
