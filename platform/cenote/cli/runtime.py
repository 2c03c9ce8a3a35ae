"""`cenote runtime ls|create|exec|run|show|fork|rm`, what is known and kept of states, and places."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from cenote.cli import (
    runtime_exec,
    runtime_fork,
    runtime_history,
    runtime_places,
    runtime_run,
    runtime_snapshots,
)
from cenote.cli.exit_status import ExitStatus
from cenote.cli.option_flags import add_flags, given
from cenote.cli.parser import COMMAND
from cenote.cli.platform_line import add_verb, meant, platform_line
from cenote.cli.policy_options import add_policy_options, policy_from, positive_seconds
from cenote.cli.runtime_facts import as_data
from cenote.runtime.remote.address import Destination
from cenote.terminal.screen import BOLD, Screen
from cenote_security.errors import CenoteError, UsageError
from cenote_security.options import definitions
from cenote_security.policy import SandboxPolicy
from cenote_security.printable import shown_size
from cenote_worker.retention import Retention

if TYPE_CHECKING:
    from cenote.harness.moment import LiveVariable
    from cenote_worker.results import SnapshotInfo

_COLUMNS = ("name", "state", "steps", "clients", "created", "parent", "id", "reason")
_WHERE_ANY = ("parent", "reason")
"""Columns that are left out where no runtime has anything there."""

_TITLES = {"steps": "last step"}
"""What a number means that is none of how many: a branch counts on from where its parent stood."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("runtime", help="list, make, use and remove runtimes of a platform")
    verbs = parser.add_subparsers(title="commands", metavar=COMMAND, required=True)
    listing = add_verb(verbs, "ls", "list your runtimes", list_all)
    listing.add_argument("--json", action="store_true", help="print one JSON array")
    _add_create(verbs)
    runtime_exec.add_to(verbs)
    runtime_run.add_to(verbs)
    showing = add_verb(verbs, "show", "what there is to know of a runtime", show)
    showing.add_argument("name", metavar="NAME", help="a name, or an id")
    showing.add_argument("--json", action="store_true", help="print one JSON object")
    runtime_history.add_to(verbs)
    runtime_snapshots.add_to(verbs)
    runtime_fork.add_to(verbs)
    runtime_places.add_to(verbs)
    removing = add_verb(verbs, "rm", "end runtimes; their state is gone", remove)
    removing.add_argument("names", nargs="+", metavar="NAME", help="a name, or an id")


def _add_create(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_verb(verbs, "create", "make a runtime that stays until it is removed", create)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "--lease",
        type=positive_seconds,
        metavar="SECONDS",
        help="end it when it has had no client for so long (default: never)",
    )
    add_flags(parser, Retention)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_policy_options(parser, rules=False)


_SIZES: Final = frozenset(known.name for known in definitions(SandboxPolicy) if known.is_size)
"""Limits of a policy that are bytes; JSON has them as they are."""


def list_all(arguments: argparse.Namespace) -> int:
    screen = Screen()
    with platform_line(meant(arguments.address, wait=arguments.answer_wait)) as line:
        found = [as_data(description) for description in line.runtimes()]
    if arguments.json:
        screen.line(json.dumps(found, indent=2))
    else:
        _table(found, screen)
    return ExitStatus.OK


def create(arguments: argparse.Namespace) -> int:
    if not arguments.name:  # as from a variable that a script has not set: nobody would find it again
        raise UsageError("a runtime that stays needs a name: `cenote runtime create NAME`")
    screen = Screen()
    policy = policy_from(arguments)
    screen.progress("making a runtime")
    with platform_line(meant(arguments.address, wait=arguments.answer_wait)) as line:
        made = as_data(
            line.create(
                arguments.name,
                policy,
                lease=arguments.lease or 0.0,
                retention=Retention(**given(arguments, Retention)),
            )
        )
    screen.line(json.dumps(made, indent=2) if arguments.json else f"{made['name']}  {made['id']}")
    return ExitStatus.OK


def show(arguments: argparse.Namespace) -> int:
    screen = Screen()
    with platform_line(meant(arguments.address, wait=arguments.answer_wait)) as line:
        found = as_data(line.runtime(arguments.name))
    there = _there(found, meant(arguments.address, wait=arguments.answer_wait))
    if arguments.json:
        kept, known = (None, None) if there is None else ([asdict(one) for one in part] for part in there)
        screen.line(json.dumps({**found, "snapshots": kept, "variables": known}, indent=2))
        return ExitStatus.OK
    for key, value in found.items():
        for name, part in value.items() if isinstance(value, dict) else [(key, value)]:
            if part is not None:
                screen.line(f"{_TITLES.get(name, name):<16} {shown_size(part) if name in _SIZES else part}")
    states, variables = there or ((), ())
    for state in states:
        screen.line(f"{'kept':<16} {runtime_snapshots.as_line(state)}")
    for variable in variables:
        screen.line(f"{'variable':<16} {runtime_snapshots.as_variable_line(variable)}")
    return ExitStatus.OK


def _there(
    found: dict[str, Any], where: Destination
) -> tuple[tuple[SnapshotInfo, ...], tuple[LiveVariable, ...]] | None:
    """What is kept of it, and its variables; None if it cannot be asked, as one without a jail. Where nothing ran, or
    one sleeps, nothing is started.
    """
    if not found["steps"] or found["state"] == "hibernated":
        return (), ()
    try:
        return runtime_snapshots.what_is_there(found["name"] or found["id"], where)
    except CenoteError:
        return None


def remove(arguments: argparse.Namespace) -> int:
    screen = Screen()
    with platform_line(meant(arguments.address, wait=arguments.answer_wait)) as line:
        for name in arguments.names:
            line.delete(name)
            screen.line(f"removed {name}")
    return ExitStatus.OK


def _table(found: list[dict[str, Any]], screen: Screen) -> None:
    if not found:
        screen.note("no runtimes; `cenote runtime create NAME` makes one")
        return
    columns = [
        column for column in _COLUMNS if column not in _WHERE_ANY or any(each[column] for each in found)
    ]
    titles = [_TITLES.get(column, column) for column in columns]
    rows = [titles, *([str(each[column]) for column in columns] for each in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        screen.line(cells.rstrip(), *(() if number else (BOLD,)))
