"""`cenote doctor`: what this machine can do for jails, each facility tried."""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import asdict, dataclass

from cenote.cli.exit_status import ExitStatus
from cenote.terminal.screen import BOLD, GREEN, RED, Screen
from cenote_security.errors import CenoteError, IsolationUnavailableError
from cenote_security.policy import Isolation
from cenote_security.walls.facilities import Facility

EPILOG = (
    "Exit status: 0 a jail can be had here (and each attack was held), 1 it cannot, with the remedy on stderr, or an "
    "attack got through."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReport:
    """isolation: what `auto` means here, None when nothing will do. remedy: what to do then, else empty."""

    isolation: str | None
    remedy: str
    facilities: tuple[Facility, ...]


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor", help="which isolation, limits and snapshots this machine has", epilog=EPILOG
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--attack", action="store_true", help="try some thirty harmless attempts to break out of a jail here"
    )
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    if arguments.attack:
        from cenote.cli.local import attack

        return attack.handle(as_json=arguments.json)
    screen = Screen()
    screen.progress("trying what this machine has")
    diagnosis = diagnose()
    if arguments.json:
        screen.line(json.dumps(machine() | asdict(diagnosis), indent=2))
    else:
        describe(diagnosis, screen)
    if diagnosis.remedy:
        screen.note(f"cenote: {diagnosis.remedy}")
    return ExitStatus.OK if diagnosis.isolation else ExitStatus.FAILED


def machine() -> dict[str, str]:
    """What is needed to make sense of a report from somewhere else."""
    return {"system": platform.platform(), "python": platform.python_version()}


def diagnose() -> MachineReport:
    """Tries each facility, and then a whole jail."""
    from cenote_security.walls.facilities import resolve_isolation
    from cenote_security.walls.probe import probe

    facilities = probe()
    try:
        isolation = resolve_isolation("auto", facilities)
    except IsolationUnavailableError as error:
        return MachineReport(isolation=None, remedy=str(error), facilities=facilities.found)
    jail = try_jail()
    remedy = (
        "" if jail.available else f"the parts of a jail are here, but none could be started: {jail.detail}"
    )
    jails = [jail, try_jail("gvisor")] if facilities["runsc"].available else [jail]
    return MachineReport(
        isolation=isolation if jail.available else None,
        remedy=remedy,
        facilities=(*facilities.found, *jails),
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


def describe(diagnosis: MachineReport, screen: Screen) -> None:
    """The report for people: what holds, then each facility with what is missing."""
    for name, value in machine().items():
        screen.line(f"{name:<10} {value}")
    screen.line(f"isolation  {diagnosis.isolation or 'none'}", BOLD, GREEN if diagnosis.isolation else RED)
    width = max(len(facility.name) for facility in diagnosis.facilities)
    for facility in diagnosis.facilities:
        screen.line(
            f"  {'yes' if facility.available else 'no ':<3}  {facility.name:<{width}}  {facility.detail}"
        )
        if facility.remedy and not facility.available:
            screen.line(f"       {'':<{width}}  {facility.remedy}")
