"""What this machine has for jails: each facility tried, and a whole jail."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cenote_security.errors import CenoteError, IsolationUnavailableError
from cenote_security.policy import Isolation
from cenote_security.walls.facilities import Facility, resolve_isolation
from cenote_security.walls.probe import probe

EXAMINED_FOR: Final = 300.0
"""Seconds for which a report is given again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReport:
    """isolation: what `auto` means here, None when nothing will do. remedy: what to do then, else empty."""

    isolation: str | None
    remedy: str
    facilities: tuple[Facility, ...]


def machine() -> dict[str, str]:
    """What is needed to make sense of a report from somewhere else."""
    return {"system": platform.platform(), "python": platform.python_version()}


def examine() -> MachineReport:
    """Tries each facility. Blocks for about half a second."""
    facilities = probe()
    try:
        isolation = resolve_isolation("auto", facilities)
    except IsolationUnavailableError as error:
        return MachineReport(isolation=None, remedy=str(error), facilities=facilities.found)
    return MachineReport(isolation=isolation, remedy="", facilities=facilities.found)


def diagnose() -> MachineReport:
    """Tries each facility, and then a whole jail."""
    report = examine()
    if report.isolation is None:
        return report
    jail = try_jail()
    remedy = (
        "" if jail.available else f"the parts of a jail are here, but none could be started: {jail.detail}"
    )
    runsc = any(facility.name == "runsc" and facility.available for facility in report.facilities)
    jails = [jail, try_jail("gvisor")] if runsc else [jail]
    return MachineReport(
        isolation=report.isolation if jail.available else None,
        remedy=remedy,
        facilities=(*report.facilities, *jails),
    )


def try_jail(isolation: Isolation = "auto") -> Facility:
    """Starts a jail and runs a cell in it. The parts may be there and still not work together."""
    from cenote.runtime import PythonRuntime
    from cenote_security.policy import SandboxPolicy

    name = "jail" if isolation == "auto" else f"{isolation} jail"
    started = time.perf_counter()
    try:
        policy = SandboxPolicy(isolation=isolation, preload=())
        # Here, whatever CENOTE_ADDRESS says.
        with PythonRuntime(sandbox=policy, address="embedded") as runtime:
            result = runtime.execute("6 * 7")
            limits = runtime.limits
    except CenoteError as error:
        return Facility(name=name, available=False, detail=str(error))
    milliseconds = 1000 * (time.perf_counter() - started)
    if result.value != "42":
        return Facility(name=name, available=False, detail=f"6 * 7 gave {result.error or result.value}")
    found = f"first result after {milliseconds:.0f} ms; limits by {limits}"
    return Facility(name=name, available=True, detail=found)


class MachineExams:
    """Reports for all who ask; an examination takes the processor, so it is not repeated at once. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turn = threading.Lock()
        self._report: MachineReport | None = None
        self._until = 0.0

    def report(self) -> MachineReport:
        """The last report, or a new one with its facilities. Blocks."""
        with self._turn:
            if self._report is None or self._clock() >= self._until:
                self._keep(examine())
            assert self._report is not None
            return self._report

    def diagnosis(self) -> MachineReport:
        """A new report, with a whole jail. Blocks for about a second."""
        with self._turn:
            return self._keep(diagnose())

    def _keep(self, report: MachineReport) -> MachineReport:
        self._report, self._until = report, self._clock() + EXAMINED_FOR
        return report
