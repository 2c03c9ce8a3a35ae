"""`cenote audit verify|show`: whether the platform's record is as it was written, and what it says."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from cenote.cli.exit_status import ExitStatus
from cenote.cli.parser import COMMAND
from cenote.terminal.screen import GREEN, RED, Screen
from cenote_security.errors import UnavailableError

if TYPE_CHECKING:
    from cenote.gateway.audit.verification import Verification

EPILOG = "Exit status: 0 the record is as it was written, 1 it is not, 4 there is none."


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("audit", help="the record of who did what on the platform here")
    verbs = parser.add_subparsers(title="commands", metavar=COMMAND, required=True)
    verifying = verbs.add_parser("verify", help="check every entry, and the head", epilog=EPILOG)
    verifying.add_argument("--json", action="store_true", help="print one JSON object")
    verifying.set_defaults(handler=handle)
    showing = verbs.add_parser(
        "show", help="print entries, the oldest first; `verify` says whether to believe them"
    )
    showing.add_argument("--runtime", default="", metavar="ID", help="only those about this runtime")
    showing.add_argument(
        "--tenant", default="", metavar="NAME", help="only those of this tenant, by name or id"
    )
    showing.add_argument(
        "--since",
        type=moment,
        default=0,
        metavar="TIME",
        help='such as "2026-11-22T08:00Z", or "2h" for 2 hours ago',
    )
    showing.add_argument("--json", action="store_true", help="print one JSON object a line")
    showing.set_defaults(handler=show_entries)


def show_entries(arguments: argparse.Namespace) -> int:
    from cenote.gateway.audit.folder import log_files
    from cenote.gateway.audit.selection import Selection, described, selected
    from cenote.gateway.state_folder import state_folder

    screen, state = Screen(), state_folder()
    if not state.audit.exists():
        raise UnavailableError(f"there is no record at {state.audit}; `cenote up` starts one")
    wanted = Selection(runtime=arguments.runtime, tenant=_tenant_id(arguments.tenant), since=arguments.since)
    for entry in selected(log_files(state.audit), wanted):
        screen.line(json.dumps(asdict(entry)) if arguments.json else described(entry))
    return ExitStatus.OK


def _tenant_id(name: str) -> str:
    from cenote.cli.operator import records
    from cenote.gateway.tenants import Tenants

    if not name or name.startswith("tn_"):
        return name
    with records() as database:
        return Tenants(database).get(name).id


def moment(text: str) -> int:
    """Microseconds since the epoch. Raises ArgumentTypeError."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    if text[-1:] in units and text[:-1].isdecimal():
        return int((time.time() - int(text[:-1]) * units[text[-1]]) * 1e6)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1e6)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'{text!r} is no time; write one such as "2026-11-22T08:00Z", or "2h" for 2 hours ago'
        ) from None


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
