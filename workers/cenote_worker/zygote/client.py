"""A client's view of its zygote: start a jail, get a handle; a zygote that died is replaced on next use."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Sequence
from typing import Self

from cenote_security.environment import Environment
from cenote_security.errors import RuntimeClosedError, UsageError
from cenote_security.policy import Isolation, Mount, SandboxPolicy
from cenote_security.walls.interpreter import Interpreter, running
from cenote_security.walls.level import LevelName
from cenote_worker.environments.interpreter import interpreter_of
from cenote_worker.environments.store import EnvironmentStore
from cenote_worker.zygote.connection import Connection, StartedJail, ZygoteFacts
from cenote_worker.zygote.descriptors import JailDescriptors
from cenote_worker.zygote.spec import DEFAULT_ENTRY, ZygoteSpec


def _digest(policy: SandboxPolicy) -> str:
    """Of its environment, which `pinned` has built; empty for none."""
    assert not isinstance(policy.environment, Environment), "a policy is pinned before a jail is asked for"
    return policy.environment or ""


class ZygoteClient:
    """Starts jails that share an isolation, a preload and mounts. Safe to use from several threads.

    The zygote process is started at once and gets ready in the background. After a fork of the client the child
    gets a zygote of its own on first use.
    folders: host folders that jails see and import from, besides the interpreter's. entry, lingers: see `ZygoteSpec`.
    environment: the digest of a built one, whose packages the jails have instead; then without `folders`.
    """

    def __init__(
        self,
        *,
        isolation: Isolation = "auto",
        preload: Iterable[str] = ("numpy", "pandas"),
        mounts: Iterable[Mount] = (),
        folders: Sequence[str] = (),
        entry: str = DEFAULT_ENTRY,
        lingers: bool = False,
        environment: str = "",
    ) -> None:
        self._isolation: Isolation = isolation
        self._preload = tuple(preload)
        self._mounts = tuple(mounts)
        self._folders = tuple(folders)
        self._entry = entry
        self._lingers = lingers
        self._environment = environment
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = False
        self._owner = os.getpid()
        self._connection = self._connect()

    @classmethod
    def for_policy(cls, policy: SandboxPolicy, *, lingers: bool = False) -> ZygoteClient:
        """A zygote for jails of this policy."""
        return cls(
            isolation=policy.isolation,
            preload=policy.preload,
            mounts=policy.mounts,
            lingers=lingers,
            environment=_digest(policy),
        )

    def fits(self, policy: SandboxPolicy) -> bool:
        """Whether jails of this policy can come from this zygote."""
        wanted = (policy.isolation, tuple(policy.preload), tuple(policy.mounts), _digest(policy))
        return wanted == (self._isolation, self._preload, self._mounts, self._environment)

    @property
    def facts(self) -> ZygoteFacts:
        """Isolation in force and modules loaded. Waits until the zygote is ready; raises what kept it from it."""
        return self._current().facts()

    @property
    def is_ready(self) -> bool:
        """Whether a jail can come from it at once, as far as is known without waiting."""
        return self._current().is_ready

    @property
    def isolation(self) -> LevelName:
        return self.facts.isolation

    def start_jail(
        self, policy: SandboxPolicy, descriptors: JailDescriptors, trusted: str = ""
    ) -> StartedJail:
        """Start a jail and wait until its worker is about to run. trusted: see Connection.start.

        The descriptors are passed on as copies; the caller keeps its own and should close them. The `policy` must
        fit. Raises IsolationUnavailableError, JailStartError, UnavailableError, UsageError.
        """
        if not self.fits(policy):
            raise UsageError(
                "isolation, preload, mounts and environment of this policy are not those of this zygote"
            )
        return self._current().start(policy, descriptors, next(self._numbers), trusted)

    def close(self) -> None:
        """End the zygote and every jail that it started; one that lingers is left to its jails."""
        with self._lock:
            if not self._closed and self._owner == os.getpid():
                self._connection.close()
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _current(self) -> Connection:
        with self._lock:
            if self._closed:
                raise RuntimeClosedError("this zygote was closed")
            if self._owner != os.getpid():
                self._connection.abandon()
                self._owner, self._connection = os.getpid(), self._connect()
            elif self._connection.ended:
                self._connection.close()
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> Connection:
        if not self._environment:
            return self._connection_to(running(self._folders), self._preload)
        kept = EnvironmentStore()
        built = kept.find(self._environment)
        with kept.held(built.digest) as held:
            preload = tuple(dict.fromkeys((*self._preload, *built.preload)))
            return self._connection_to(interpreter_of(built, kept), preload, held)

    def _connection_to(
        self, interpreter: Interpreter, preload: tuple[str, ...], held: int = -1
    ) -> Connection:
        spec = ZygoteSpec(
            isolation=self._isolation,
            preload=preload,
            mounts=self._mounts,
            search=interpreter.search,
            visible=interpreter.visible,
            entry=self._entry,
            client=os.getpid(),
            lingers=self._lingers,
            prefix=interpreter.prefix,
            held=held,
        )
        return Connection(interpreter, spec)
