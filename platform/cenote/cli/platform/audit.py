"""`cenote audit verify|show|export`: whether the platform's record is as it was written, and what it says."""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cenote.cli.arguments import COMMAND
from cenote.cli.exit_status import ExitStatus
from cenote.terminal.screen import GREEN, RED, Screen, counted
from cenote_security.errors import UnavailableError

if TYPE_CHECKING:
    from cenote.gateway.audit.entries import AuditEntry
    from cenote.gateway.audit.reader import EntrySelection, IdNames, LogVerification

_LOOK_EVERY: Final = 0.5
"""Seconds between two looks for entries that have come."""

_COLUMNS: Final = (
    *("number", "time", "kind", "tenant", "tenant_name", "token", "runtime", "runtime_name"),
    *("facts", "hash"),
)

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
    _add_selection(showing)
    showing.add_argument("--limit", type=entry_count, metavar="N", help="only the last N of them")
    showing.add_argument("-f", "--follow", action="store_true", help="go on with those to come, until Ctrl-C")
    showing.add_argument("--json", action="store_true", help="print one JSON object a line")
    showing.set_defaults(handler=show_entries)
    exporting = verbs.add_parser(
        "export", help="write entries, with the names of tenants and runtimes, for other programs"
    )
    _add_selection(exporting)
    exporting.add_argument(
        "--format", choices=("jsonl", "csv"), default="jsonl", help="JSON, one object a line, or CSV"
    )
    exporting.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")
    exporting.set_defaults(handler=export)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runtime", default="", metavar="NAME", help="only those about this runtime, by name or id"
    )
    parser.add_argument(
        "--tenant", default="", metavar="NAME", help="only those of this tenant, by name or id"
    )
    for option, default, text in (("since", 0, "not older"), ("until", 2**63, "not newer")):
        parser.add_argument(
            f"--{option}",
            type=moment,
            default=default,
            metavar="TIME",
            help=f'{text} than this, such as "2026-11-22T08:00Z", or "2h" for 2 hours ago',
        )


def entry_count(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of entries; write one such as 100")


def show_entries(arguments: argparse.Namespace) -> int:
    from cenote.gateway.audit.folder import log_files
    from cenote.gateway.audit.reader import described, followed, selected

    screen, folder, wanted, names = Screen(), _log(), _selection(arguments), id_names()

    def show(entry: AuditEntry) -> None:
        screen.line(
            json.dumps(asdict(entry) | names.of(entry)) if arguments.json else described(entry, names)
        )

    last = _last_number(folder)  # before the entries: none is missed between these and those to come
    found = selected(log_files(folder), wanted, names)
    for entry in found if arguments.limit is None else deque(found, arguments.limit):
        show(entry)
        last = max(last, entry.number)
    if arguments.follow:
        for entry in followed(folder, wanted, lambda: time.sleep(_LOOK_EVERY), names, last):
            show(entry)
    return ExitStatus.OK


def export(arguments: argparse.Namespace) -> int:
    from cenote.gateway.audit.folder import log_files
    from cenote.gateway.audit.reader import exported, selected

    folder, wanted, names = _log(), _selection(arguments), id_names()
    with ExitStack() as opened:
        out = sys.stdout
        if arguments.output is not None:
            out = opened.enter_context(arguments.output.open("w", encoding="utf-8", newline=""))
        rows = (exported(entry, names) for entry in selected(log_files(folder), wanted, names))
        if arguments.format == "jsonl":
            for row in rows:
                out.write(f"{json.dumps(row)}\n")
            return ExitStatus.OK
        table = csv.DictWriter(out, _COLUMNS)
        table.writeheader()
        for row in rows:
            table.writerow(row | {"facts": json.dumps(row["facts"], sort_keys=True)})
    return ExitStatus.OK


def _log() -> Path:
    from cenote.gateway.store.state_folder import state_folder

    folder = state_folder().audit
    if not folder.exists():
        raise UnavailableError(f"there is no record at {folder}; `cenote up` starts one")
    return folder


def _selection(arguments: argparse.Namespace) -> EntrySelection:
    from cenote.gateway.audit.reader import EntrySelection

    return EntrySelection(
        runtime=arguments.runtime,
        tenant=tenant_id(arguments.tenant),
        since=arguments.since,
        until=arguments.until,
    )


def id_names() -> IdNames:
    """Of tenants. Without the database, ids are all that there is to show."""
    from cenote.cli.platform.connection import records
    from cenote.gateway.audit.reader import IdNames
    from cenote.gateway.store.tenants import Tenants

    try:
        with records() as database:
            return IdNames(tenants={tenant.id: tenant.name for tenant in Tenants(database).all()})
    except UnavailableError as error:
        Screen().note(f"tenants are shown by their ids alone: {error}")
        return IdNames()


def _last_number(folder: Path) -> int:
    """The number of the last entry; 0 if there is none."""
    from cenote.gateway.audit.folder import log_files
    from cenote.gateway.audit.reader import EntrySelection, selected

    numbers = [entry.number for entry in selected(log_files(folder)[-1:], EntrySelection())]
    return max(numbers, default=0)


def tenant_id(name: str) -> str:
    from cenote.cli.platform.connection import records
    from cenote.gateway.store.tenants import Tenants

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
    from cenote.gateway.audit.reader import verify
    from cenote.gateway.store.state_folder import state_folder
    from cenote_security.auth.secret_files import read_secret_file

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


def show(found: LogVerification, screen: Screen) -> None:
    screen.line(f"{counted(found.last.number, 'entry', 'entries')}, the last with hash {found.last.hash}")
    if found.broken is None:
        screen.line("the record is as it was written", GREEN)
        return
    where = f"{found.broken.file}, line {found.broken.line}" if found.broken.line else found.broken.file
    screen.line(f"entry {found.broken.number} ({where}) is not as it was written: {found.broken.reason}", RED)
