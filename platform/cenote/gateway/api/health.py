"""Whether a platform can be used now, and if not, why: for health checks and operators.

A gateway is alive if its loop answers. Nothing else is part of that, since killing the process repairs nothing else.
It is ready if it can also write its records and reach its machines. No token is needed or looked at: a probe must not
fail because a token was revoked. So causes name no file, no address and no tenant.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cenote.gateway.errors import StoreAwayError, missing_folder
from cenote.gateway.machines.nodes import Nodes
from cenote.gateway.store.database import Database
from cenote.gateway.store.state_locations import StateLocations
from cenote.gateway.store.stores import Stores
from cenote.gateway.tls.certificate_check import expiry
from cenote_security.errors import CenoteError, UnavailableError

log = logging.getLogger("cenote.gateway")

SERVICE: Final = "ready"
"""The service name for readiness in gRPC's health service. The empty name is for liveness."""

LOOK_EVERY: Final = 10.0
"""Seconds between two checks by the platform itself, for its log, its service manager and watching clients."""

FRESH: Final = 2.0
"""Seconds for which a result is cached, however many ask."""

PATIENCE: Final = 4.0
"""Seconds for all checks of one request, less than probes wait. A check that takes longer is itself a cause."""

PROBE_BYTES: Final = 1 << 20
"""Bytes that must fit on a disk: a transaction, and the next entries of the audit log."""

LOW_BYTES: Final = 1 << 30
LOW_SHARE: Final = 0.05
"""Warns where less than this share, and less than the absolute limit, is free."""

RUNS_OUT: Final = timedelta(days=14)
"""Warns when a certificate expires sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """subject: disk, records, store, machines or certificates. text: for people, with the next step.

    warning: the platform is ready nevertheless. detail: for the platform's own log, such as an address.
    """

    subject: str
    text: str
    warning: bool = False
    detail: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The result of all checks."""

    causes: tuple[Cause, ...] = ()

    @property
    def ready(self) -> bool:
        return all(cause.warning for cause in self.causes)

    def __str__(self) -> str:
        """The condition as one line."""
        causes = "; ".join(f"{cause.subject}: {cause.text}" for cause in self.causes)
        if not self.ready:
            return f"not ready: {causes}"
        return f"ready; {causes}" if causes else "ready"


Check = Callable[[], Sequence[Cause]]
"""A check of one subject; it may block. An exception becomes a cause."""


class Health:
    """Runs each check on a thread of its own: one that hangs, as on a network disk, delays no other.

    checks: by subject. changed: called on the loop with each condition that differs from the one before.
    """

    def __init__(
        self,
        checks: Mapping[str, Check],
        changed: Callable[[Condition], None] = lambda _condition: None,
        patience: float = PATIENCE,
    ) -> None:
        self._looks = [_Look(subject, check) for subject, check in checks.items()]
        self._changed = changed
        self._patience = patience
        self._last: Condition | None = None

    async def condition(self) -> Condition:
        """The condition now, or a moment ago. Returns within PATIENCE, even if a check hangs."""
        findings = [look.begun() for look in self._looks]
        if waited := [asyncio.wrap_future(finding) for finding in findings if not finding.done()]:
            await asyncio.wait(waited, timeout=self._patience)
        found = Condition(
            causes=tuple(
                cause
                for look, finding in zip(self._looks, findings, strict=True)
                for cause in look.causes(finding)
            )
        )
        if found != self._last:
            self._last = found
            log.log(logging.INFO if found.ready else logging.ERROR, "the platform is %s", found)
            for cause in found.causes:
                if cause.detail:
                    log.info("%s: %s", cause.subject, cause.detail)
            self._changed(found)
        return found


class _Look:
    """One check, with at most one run at a time."""

    def __init__(self, subject: str, check: Check) -> None:
        self._subject = subject
        self._check = check
        self._lock = threading.Lock()
        self._began = self._ended = 0.0
        self._finding: Future[tuple[Cause, ...]] | None = None
        self._known: tuple[Cause, ...] = ()
        """Causes of the last run that ended."""

    def begun(self) -> Future[tuple[Cause, ...]]:
        """Returns a recent run, or the one under way."""
        with self._lock:
            now = time.monotonic()
            finding = self._finding
            if finding is None or (finding.done() and now - self._ended > FRESH):
                self._finding = finding = Future()
                self._began = now
                threading.Thread(
                    target=self._carry_out,
                    args=(finding,),
                    name=f"cenote-health-{self._subject}",
                    daemon=True,
                ).start()
            return finding

    def causes(self, finding: Future[tuple[Cause, ...]]) -> tuple[Cause, ...]:
        """Causes of a run that was begun, and may be under way."""
        if finding.done():
            return finding.result()
        if any(not cause.warning for cause in self._known):  # these say more than that the check takes long
            return self._known
        if not self._ended:
            text = "no answer yet; the platform may still be starting"
            return (Cause(subject=self._subject, text=text),)
        # Rounded to tens, so that a check that keeps hanging is not a new condition each time.
        seconds = int(time.monotonic() - self._began) // 10 * 10
        lasts = f"for {seconds} s" if seconds else "for some seconds"
        return (Cause(subject=self._subject, text=f"no answer {lasts}; whatever it waits for hangs"),)

    def _carry_out(self, finding: Future[tuple[Cause, ...]]) -> None:
        try:
            causes = tuple(self._check())
        except Exception as error:  # noqa: BLE001  (whatever it is, it is a cause)
            text = f"a look at it failed with {type(error).__name__}; the platform's log has more"
            causes = (Cause(subject=self._subject, text=text, detail=traceback.format_exc()),)
        self._ended, self._known = time.monotonic(), causes
        finding.set_result(causes)


def platform_checks(
    stores: Stores, state: Path, nodes: Nodes, certificates: Callable[[], Mapping[str, bytes]]
) -> dict[str, Check]:
    """All checks of a platform. state: its folder. certificates: see certificate_causes."""
    return {
        "disk": lambda: disk_causes(state, "the platform's state"),
        "records": lambda: record_causes(stores.database, stores.recorder.problem),
        "store": lambda: store_causes(stores.states),
        "machines": lambda: machine_causes(nodes),
        "certificates": lambda: certificate_causes(certificates(), datetime.now(UTC)),
    }


def disk_causes(folder: Path, what: str) -> list[Cause]:
    """Checks the free space. what: how causes call the content of the folder."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, PROBE_BYTES)
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return [Cause(subject="disk", text=_refused(error, what))]
    if usage.free < min(LOW_BYTES, LOW_SHARE * usage.total):
        left = f"{usage.free >> 20} MiB"
        text = f"only {left} are left on the disk of {what}; make room before it is full"
        return [Cause(subject="disk", text=text, warning=True)]
    return []


def _refused(error: OSError, what: str) -> str:
    match error.errno:
        case errno.ENOSPC:
            return f"the disk of {what} is full; make room there"
        case errno.EDQUOT:
            return f"the quota of disk for {what} is used up; make room there"
        case errno.EROFS:
            return f"the disk of {what} is read-only; look for its errors in the kernel's log"
        case errno.ENOENT:
            return missing_folder(what)
        case errno.EACCES | errno.EPERM:
            return f"the folder of {what} may not be written by the platform's user"
    return f"the disk of {what} cannot be written: {error.strerror}"


def record_causes(database: Database, audit_problem: str) -> list[Cause]:
    """Checks that the database takes a change and the audit log an entry. audit_problem: the log's own, or empty."""
    causes = []
    try:
        if database.file is not None and not database.file.exists():
            text = "the database's file is gone; end the platform and put a backup of it back"
            causes.append(Cause(subject="records", text=text))
        else:
            database.check_writing()
    except CenoteError as error:
        remedy = getattr(error, "remedy", "") or "see that it runs and can be reached"
        text = f"the database cannot be used; {remedy}"
        causes.append(Cause(subject="records", text=text, detail=str(error)))
    if audit_problem:
        text = "the audit log cannot be written, and what must be recorded is refused; the platform's log says why"
        causes.append(Cause(subject="records", text=text, detail=audit_problem))
    return causes


def store_causes(states: StateLocations) -> list[Cause]:
    """Checks that the store of durable runtimes can be reached, and has room if it is a folder."""
    what = "the store of durable runtimes"
    try:
        folder = states.reached()
    except StoreAwayError as error:
        return [Cause(subject="store", text=str(error))]
    except Exception as error:  # noqa: BLE001  (whatever a library for some store raises)
        text = f"{what} cannot be reached; see that it runs, and --store"
        return [Cause(subject="store", text=text, detail=repr(error))]
    if folder is None:
        return []
    return [replace(cause, subject="store") for cause in disk_causes(folder, what)]


def machine_causes(nodes: Nodes) -> list[Cause]:
    """Checks that some machine takes runtimes. One of many that does not answer is a warning."""
    try:
        machines = nodes.describe()
    except UnavailableError as error:
        text = "the Ray cluster does not answer; see that its head runs"
        return [Cause(subject="machines", text=text, detail=str(error))]
    silent = [machine.id for machine in machines if machine.silent]
    if not machines and nodes.grows:
        return []
    if not machines:
        return [Cause(subject="machines", text="no machine takes runtimes; see that the cluster has some")]
    if not silent:
        return []
    text = (
        f"{len(silent)} of {len(machines)} node agents do not answer; they are replaced if that lasts, and "
        "`cenote status` with a token names them"
    )
    return [Cause(subject="machines", text=text, warning=len(silent) < len(machines))]


def certificate_causes(certificates: Mapping[str, bytes], now: datetime) -> list[Cause]:
    """Checks that certificates are good. certificates: PEM, by the name that causes use."""
    causes = []
    for what, pem in certificates.items():
        end = expiry(pem)
        if end <= now:
            text = f"{what} expired on {end:%Y-%m-%d}, and clients refuse it; renew it"
            causes.append(Cause(subject="certificates", text=text))
        elif end <= now + RUNS_OUT:
            text = f"{what} expires on {end:%Y-%m-%d}; renew it before"
            causes.append(Cause(subject="certificates", text=text, warning=True))
    return causes
