"""A separate PostgreSQL server for a test: on a socket in a folder, with nothing outside it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import psycopg
import pytest

USER = "postgres"


class PostgresqlServer:
    """Started at entry, ended at exit. As root it runs as `postgres`, since it refuses to run as root."""

    def __init__(self) -> None:
        # Not in the tests' folder, which only its owner can read, and whose path is too long for a socket's.
        self._folder = Path(tempfile.mkdtemp(prefix="cenote-pg-", dir="/tmp"))
        self._data = self._folder / "data"
        self.url = f"postgresql+psycopg://postgres@/postgres?host={self._folder}"

    def start(self) -> None:
        self._control("start", "--wait", "--log", str(self._folder / "log"), "--options", self._options())

    def kill(self) -> None:
        """Ends without notice, like a crash of its machine."""
        self._control("stop", "--mode", "immediate")

    @contextmanager
    def stopped(self, *connections: int) -> Iterator[None]:
        """Neither answers nor refuses, like a hanging machine. connections: also stop the processes serving them."""
        stopped = (int((self._data / "postmaster.pid").read_text().split()[0]), *connections)
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in stopped:
                os.kill(process, signal.SIGCONT)

    def execute(self, statement: str) -> None:
        """Runs a statement outside of any transaction."""
        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(statement)

    def __enter__(self) -> PostgresqlServer:
        try:
            if _unprivileged():
                shutil.chown(self._folder, USER)
            self._run("initdb", "--auth=trust", "--username=postgres", "--no-sync", "-D", str(self._data))
            self.start()
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (self._data / "postmaster.pid").exists():
            self.kill()
        shutil.rmtree(self._folder)

    def _options(self) -> str:
        # Otherwise shared memory has machine-wide names, which a killed server leaves behind.
        return (
            f"-c listen_addresses='' -c unix_socket_directories='{self._folder}' -c fsync=off"
            " -c dynamic_shared_memory_type=mmap"
        )

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self._data), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        line = [*_unprivileged(), _found(program), *arguments]
        quiet = subprocess.DEVNULL
        subprocess.run(line, check=True, stdin=quiet, stdout=quiet, cwd=self._folder)


def _found(program: str) -> str:
    """Debian does not put them on the path. Skips the test if there is none."""
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin")), *map(Path, os.get_exec_path())]
    for place in places:
        if os.access(place / program, os.X_OK):
            return str(place / program)
    pytest.skip(f"no {program} here: the package `postgresql` has it")


def _unprivileged() -> tuple[str, ...]:
    """A program that switches the user: doing so between fork and exec would break the child under gRPC's threads."""
    if os.getuid() != 0:
        return ()
    try:
        pwd.getpwnam(USER)
    except KeyError:
        pytest.skip(f"no user `{USER}` here, and PostgreSQL does not run as root")
    return ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups")
