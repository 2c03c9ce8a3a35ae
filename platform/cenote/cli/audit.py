"""`cenote audit verify`: whether the platform's record is as it was written."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from cenote.cli.exit_status import ExitStatus
from cenote.terminal.screen import GREEN, RED, Screen
from cenote_security.errors import UnavailableError

if TYPE_CHECKING:
    from cenote.gateway.audit.verification import Verification

EPILOG = "Exit status: 0 the record is as it was written, 1 it is not, 4 there is none."


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("audit", help="the record of who did what on the platform here")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    verifying = verbs.add_parser("verify", help="check every entry, and the head", epilog=EPILOG)
    verifying.add_argument("--json", action="store_true", help="print one JSON object")
    verifying.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    from cenote.gateway.audit.verification import verify
    from cenote.gateway.state_folder import state_folder
    from cenote_security.secret_files import read_secret_file

    screen, state = Screen(), state_folder()
    if not state.audit.exists():
        raise UnavailableError(f"there is no record at {state.audit}; `cenote up` starts one")
    screen.progress("reading the record")
    found = verify(state.audit, read_secret_file(state.audit_key))
    if arguments.json:
        screen.line(json.dumps(asdict(found), indent=2))
    else:
        show(found, screen)
    return ExitStatus.FAILED if found.broken else ExitStatus.OK


def show(found: Verification, screen: Screen) -> None:
    screen.line(f"{found.last.number} entries, the last with hash {found.last.hash}")
    if found.broken is None:
        screen.line("the record is as it was written", GREEN)
        return
    where = f"{found.broken.file}, line {found.broken.line}" if found.broken.line else found.broken.file
    screen.line(f"entry {found.broken.number} ({where}) is not as it was written: {found.broken.reason}", RED)
