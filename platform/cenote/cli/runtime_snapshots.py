"""`cenote runtime snapshot|rollback`, and what `show` says: states of a runtime that are kept in its memory."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from cenote.cli.attached import attached
from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform_line import add_runtime_verb, meant
from cenote.runtime.remote.address import Destination
from cenote.terminal.screen import Screen
from cenote_security.printable import printable

if TYPE_CHECKING:
    from cenote.harness.moment import LiveVariable
    from cenote_worker.results import Rollback, SnapshotInfo


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    keeping = add_runtime_verb(commands, "snapshot", "keep the state of a runtime as it is now", keep)
    keeping.add_argument("--label", default="", metavar="LABEL", help="a name for it, to go back to it by")
    returning = add_runtime_verb(
        commands, "rollback", "go back to a state that is kept, and forward again", roll_back
    )
    returning.add_argument(
        "to", metavar="STEP|LABEL", type=target, help="the step after which it was (0: the first state)"
    )
    for verb in (keeping, returning):
        verb.add_argument("--json", action="store_true", help="print one JSON object")


def target(text: str) -> int | str:
    """What is all digits is a step."""
    return int(text) if text.isascii() and text.isdecimal() else text


def keep(arguments: argparse.Namespace) -> int:
    screen = Screen()
    with attached(arguments.name, meant(arguments.address, wait=arguments.answer_wait)) as runtime:
        kept = runtime.snapshot(arguments.label)
    if arguments.json:
        screen.line(json.dumps({"step": kept.step, "label": kept.label}, indent=2))
        return ExitStatus.OK
    named = f" as {kept.label!r}" if kept.label else ""
    screen.line(f"the state after step {kept.step} is kept{named}")
    return ExitStatus.OK


def roll_back(arguments: argparse.Namespace) -> int:
    screen = Screen()
    with attached(arguments.name, meant(arguments.address, wait=arguments.answer_wait)) as runtime:
        given = runtime.rollback(arguments.to)
    if arguments.json:
        screen.line(json.dumps(asdict(given), indent=2))
        return ExitStatus.OK
    screen.line(f"back at the end of step {given.step}")
    for line in _losses(given):
        screen.note(line)
    return ExitStatus.OK


def what_is_there(name: str, where: Destination) -> tuple[tuple[SnapshotInfo, ...], tuple[LiveVariable, ...]]:
    """The kept states of a runtime that has run something, and its variables as its history tells them: a cell that
    runs is not waited for.
    """
    with attached(name, where) as runtime:
        return runtime.snapshots(), runtime.state.at(runtime.state.head).variables


def as_line(kept: SnapshotInfo) -> str:
    label = f"  {kept.label}" if kept.label else ""
    return f"after step {kept.step}, {kept.memory / 2**20:.1f} MiB{label}"


def as_variable_line(known: LiveVariable) -> str:
    shape = f" {known.shape}" if known.shape is not None else ""
    writer = f", step {known.step}" if known.step else ""
    return printable(f"{known.name}: {known.type or 'of a type that is not known'}{shape}{writer}")


def _losses(given: Rollback) -> list[str]:
    lines = [printable(line) for line in given.amiss]
    if given.severed:
        lines.append(f"of no use any more: {', '.join(given.severed)}")
    if given.unkept:
        lines.append(f"the state before is not kept: {printable(given.unkept)}")
    return lines
