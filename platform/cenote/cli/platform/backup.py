"""`cenote backup` and `cenote restore`: all that the platform of this user stores, as one file, and back."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cenote.cli.exit_status import ExitStatus
from cenote.terminal.screen import GREEN, YELLOW, Screen, counted
from cenote_security.printable import shown_size

if TYPE_CHECKING:
    from cenote.gateway.backup.backup import BackupReport
    from cenote.gateway.backup.restore import RestoreReport

BACKUP_EPILOG = """The file holds the keys of the platform, and is as secret as they are. Exit status: 0 it is there,
2 wrong usage, such as a file that exists already, 4 it cannot be made."""

RESTORE_EPILOG = """Exit status: 0 the platform is there, or the file is good, 1 something in the file was damaged
before it was made, which is printed, 2 wrong usage, such as a folder that is not empty, 3 the file is no backup that
can be restored, 4 it cannot be written here."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    backup = commands.add_parser(
        "backup",
        help="write all that the platform here stores to one file, while it runs",
        epilog=BACKUP_EPILOG,
    )
    backup.add_argument("file", type=Path, metavar="FILE", help="a new file")
    what = backup.add_mutually_exclusive_group()
    what.add_argument(
        "--store",
        default="",
        metavar="URL",
        help="where states are (default: as the platform was last started)",
    )
    what.add_argument(
        "--without-store",
        action="store_true",
        help="leave states out, of a store that is copied by other means",
    )
    backup.add_argument("--json", action="store_true", help="print one JSON object")
    backup.set_defaults(handler=back_up)
    restore = commands.add_parser(
        "restore", help="make a new platform here of a backup; `cenote up` starts it", epilog=RESTORE_EPILOG
    )
    restore.add_argument("file", type=Path, metavar="FILE", help="a file that `cenote backup` has made")
    restore.add_argument(
        "--check", action="store_true", help="restore to a folder beside the platform's, and remove it again"
    )
    restore.add_argument(
        "--database", metavar="URL", help="an empty PostgreSQL database; may be in CENOTE_DATABASE as well"
    )
    restore.add_argument(
        "--store", default="", metavar="URL", help="an empty store (default: a folder of this machine)"
    )
    restore.add_argument("--json", action="store_true", help="print one JSON object")
    restore.set_defaults(handler=restored)


def back_up(arguments: argparse.Namespace) -> int:
    from cenote.gateway.backup.backup import back_up
    from cenote.gateway.store.state_folder import state_folder

    screen = Screen()
    report = back_up(
        state_folder(),
        arguments.file,
        store=_store(arguments.store),
        with_store=not arguments.without_store,
        going_on=screen.progress,
    )
    if arguments.json:
        screen.line(json.dumps(asdict(report), indent=2))
        return ExitStatus.OK
    screen.line(f"{report.path}: {shown_size(report.size)}", GREEN)
    screen.line(_contents(report))
    for name in report.without_state:
        screen.line(f"  the store has nothing of the durable runtime {name}", YELLOW)
    return ExitStatus.OK


def restored(arguments: argparse.Namespace) -> int:
    import os

    from cenote.gateway.backup.restore import restore
    from cenote.gateway.store.database import DATABASE
    from cenote.gateway.store.state_folder import state_folder

    screen, state = Screen(), state_folder()
    report = restore(
        state,
        arguments.file,
        database=arguments.database or os.environ.get(DATABASE, ""),
        store=_store(arguments.store),
        check_only=arguments.check,
        going_on=screen.progress,
    )
    if arguments.json:
        screen.line(json.dumps(asdict(report), indent=2))
    else:
        _show(report, screen, arguments, state.path)
    return ExitStatus.FAILED if report.problems else ExitStatus.OK


def _contents(report: BackupReport | RestoreReport) -> str:
    return (
        f"  {counted(report.tenants, 'tenant')}, {counted(report.runtimes, 'runtime')} "
        f"({report.stored} with a stored state), {counted(report.entries, 'entry', 'entries')} of the audit log"
    )


def _show(report: RestoreReport, screen: Screen, arguments: argparse.Namespace, place: Path) -> None:
    made = datetime.fromtimestamp(report.made, UTC).isoformat(sep=" ", timespec="seconds")
    if arguments.check:
        screen.line(f"{arguments.file} of {made} can be restored", GREEN)
    else:
        screen.line(f"the platform of {made} is in {place}", GREEN)
    screen.line(_contents(report))
    for problem in report.problems:
        screen.line(f"  {problem}", YELLOW)
    if not arguments.check:
        more = f" --store {arguments.store}" if arguments.store else ""
        screen.line(f"start it with `cenote up{more}`")
        if not report.with_store and not arguments.store:
            screen.line("  and the --store that it had: states are not in this backup", YELLOW)


def _store(given: str) -> str:
    """A folder is meant from here."""
    return given if not given or "://" in given else str(Path(given).resolve())
