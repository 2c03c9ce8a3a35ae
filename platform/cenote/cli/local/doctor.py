"""`cenote doctor`: what this machine can do for jails, each facility tried."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from cenote.cli.exit_status import ExitStatus
from cenote.runtime.machine_report import MachineReport, diagnose, machine
from cenote.terminal.screen import BOLD, GREEN, RED, Screen

EPILOG = (
    "Exit status: 0 a jail can be had here (and each attack was held), 1 it cannot, with the remedy on stderr, or an "
    "attack got through."
)


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
