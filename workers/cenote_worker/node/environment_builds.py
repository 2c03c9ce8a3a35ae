"""Environments that a platform has built on this machine for its tenants: one at a time, in the background.

A build is known by a key. A caller who asks again learns how far it is; after a crash of this process, asking again
begins it again.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from cenote_security.errors import CenoteError, UsageError
from cenote_worker.environments.building import install_with
from cenote_worker.environments.errors import (
    EnvironmentBuildError,
    EnvironmentInUseError,
    UnknownEnvironmentError,
)
from cenote_worker.environments.packages import PackageLock
from cenote_worker.environments.store import BuiltEnvironment, EnvironmentStore
from cenote_worker.node.environment_jail import BuildJail, BuildSettings, IndexReach
from cenote_worker.process.threads import begin_thread
from cenote_worker.supervisor.start import JailStarter

log = logging.getLogger("cenote.environments")

_WAITING: Final = "waiting for other builds on this machine"
_NO_ROOM: Final = "the machine cannot store the packages, and its operator makes room in CENOTE_ENVIRONMENTS"
_FAILED: Final = "the machine failed at building it; its operator finds why in its log"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOrder:
    """key: of the build. requirements: what to resolve where there is no `lock` yet. room: bytes that it may have."""

    key: str
    requirements: tuple[str, ...]
    settings: BuildSettings
    lock: PackageLock | None = None
    room: int = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """How far a build is. progress: its latest line. error: why it failed, in one line. built: once it is ready."""

    state: Literal["building", "ready", "failed"]
    progress: str = ""
    error: str = ""
    built: BuiltEnvironment | None = None


def environments_here() -> frozenset[str]:
    """Digests of the environments on this machine."""
    try:
        return frozenset(EnvironmentStore().digests())
    except UsageError:  # a user without a home folder has no place for any
        return frozenset()


class EnvironmentBuilds:
    """Thread-safe. Its calls do not wait for builds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._starter = JailStarter(IndexReach)
        self._reports: dict[str, BuildReport] = {}

    def look(self, order: BuildOrder) -> BuildReport:
        """How far the build is, which is begun if need be. What has failed is reported once, and then begun again."""
        with self._lock:
            found = self._reports.get(order.key)
            if found is not None:
                if found.state != "building":
                    del self._reports[order.key]
                return found
            begun = self._reports[order.key] = BuildReport(state="building", progress=_WAITING)
        try:
            begin_thread("cenote-environment", lambda: self._build(order))
        except CenoteError:
            with self._lock:
                del self._reports[order.key]
            raise
        return begun

    def remove(self, digest: str) -> bool:
        """Removes an environment. False while jails may start from it. One that has a name on this machine is its
        operator's, and stays.
        """
        kept = EnvironmentStore()
        if digest in kept.names().values():
            return True
        try:
            kept.remove(digest)
        except UnknownEnvironmentError:
            return True
        except EnvironmentInUseError:
            return False
        return True

    def _build(self, order: BuildOrder) -> None:
        with self._turn:
            try:
                report = BuildReport(state="ready", built=self._built(order))
            except OSError as error:
                report = BuildReport(state="failed", error=f"{_NO_ROOM}: {error.strerror or error}")
            except EnvironmentBuildError as error:
                report = BuildReport(state="failed", error=f"{error.doing}: {error.reason}")
            except CenoteError as error:
                report = BuildReport(state="failed", error=" ".join(str(error).split()))
            except Exception:
                log.exception("an environment could not be built")
                report = BuildReport(state="failed", error=_FAILED)
        with self._lock:
            self._reports[order.key] = report

    def _built(self, order: BuildOrder) -> BuiltEnvironment:
        def progress(line: str) -> None:
            with self._lock:
                self._reports[order.key] = BuildReport(state="building", progress=line)

        kept = EnvironmentStore()
        if order.lock is not None and (found := kept.get(order.lock.digest(()))) is not None:
            return found
        progress("starting the jail that builds it")
        with BuildJail.begun(self._starter, order.settings, progress, order.room) as jail:
            lock = order.lock or jail.resolved(order.requirements)
            return install_with(lock, partial(jail.install, lock), kept, progress)
