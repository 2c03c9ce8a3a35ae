"""Jails for tests: started through a real zygote, controlled by Python source, inspected from outside."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.processes import children_of
from tests.waiting import PATIENCE

from cenote_security.policy import SandboxPolicy
from cenote_worker.supervisor.account.worker_process import pid_of
from cenote_worker.supervisor.jail_count_limit import ensure_room
from cenote_worker.zygote.client import StartedJail, ZygoteClient
from cenote_worker.zygote.descriptors import JailDescriptors

ENTRIES = str(Path(__file__).resolve().parent / "entries")
"""Seconds. Only a hung test waits so long."""


def zygote(**settings: Any) -> ZygoteClient:
    """A zygote whose workers run the source that they receive: see `entries/talking_worker.py`."""
    ensure_room()  # as in real use: a zygote has the limits of its client
    return ZygoteClient(folders=(ENTRIES,), entry="talking_worker", **settings)


class InJailError(Exception):
    """An error raised inside. name: of its class. errno: of an OSError."""

    def __init__(self, name: str, text: str, errno: int | None) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.errno = errno


class Jail:
    """One jail and the client's ends of its descriptors."""

    def __init__(self, source: ZygoteClient, policy: SandboxPolicy) -> None:
        self.frames, frames = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.output, output = os.pipe()
        try:
            passed = JailDescriptors(
                frames=frames.fileno(), control=control.fileno(), stdout=output, stderr=output
            )
            self.started: StartedJail = source.start_jail(policy, passed)
        finally:
            frames.close()
            control.close()
            os.close(output)
        self.frames.settimeout(PATIENCE)
        self.control.settimeout(PATIENCE)

    def ask(self, source: str) -> Any:
        """Runs source in the worker; returns the value of `result`, as JSON. Raises InJailError."""
        self.tell(source)
        return self.hear()

    def tell(self, source: str) -> None:
        self.frames.send(source.encode())

    def hear(self) -> Any:
        answer = json.loads(self.frames.recv(2**20))
        if "error" in answer:
            raise InJailError(answer["error"], answer["text"], answer["errno"])
        return answer["result"]

    def say(self, **message: Any) -> Any:
        """Sends a control message and waits for the next one from the warden."""
        self.control.send(json.dumps(message).encode())
        return self.news()

    def news(self) -> Any:
        return json.loads(self.control.recv(4096))

    @property
    def warden(self) -> int:
        """The warden's pid, as this process sees it."""
        return pid_of(self.started.pidfd)

    @property
    def worker(self) -> int:
        (child,) = children_of(self.warden)
        return child

    def wait_for_end(self, seconds: float = PATIENCE) -> bool:
        """True once the warden has ended."""
        return bool(select.select([self.started.pidfd], [], [], seconds)[0])

    def read_output(self) -> str:
        return os.read(self.output, 65536).decode()

    def close(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.started.pidfd, signal.SIGKILL)
        for descriptor in (self.started.pidfd, self.output):
            os.close(descriptor)
        self.frames.close()
        self.control.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def zygote_pid(client: ZygoteClient) -> int:
    """The pid of a client's zygote. Waits until it is ready."""
    assert client.facts
    return client._current()._process.pid
