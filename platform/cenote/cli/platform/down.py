"""`cenote down`: ends the platform that `cenote up` started here, and all of its runtimes."""

from __future__ import annotations

import argparse
import json

from cenote.cli.exit_status import ExitStatus
from cenote.terminal.screen import Screen

_FORCED = (
    "warning: the platform had been killed, or did not end in time; what it had left was ended in its place, "
    "its runtimes with it"
)

EPILOG = "Exit status: 0 no platform runs here any more, 4 one is being started or ended just now."


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("down", help="end the platform on this machine", epilog=EPILOG)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    from cenote.gateway.process.launch import stop_platform
    from cenote.gateway.store.state_folder import state_folder

    screen = Screen()
    with screen.busy("ending the platform"):
        ending = stop_platform(state_folder())
    running = ending.platform
    if ending.forced:
        screen.note(_FORCED)
    if arguments.json:
        told = {
            "ended": running is not None,
            "pid": running.pid if running else None,
            "forced": ending.forced,
        }
        screen.line(json.dumps(told))
    elif running is None:
        screen.line("no platform runs here")
    else:
        where = f"at {running.address}" if running.address else "that was being started"
        screen.line(f"the platform {where} (pid {running.pid}) has ended")
    return ExitStatus.OK
