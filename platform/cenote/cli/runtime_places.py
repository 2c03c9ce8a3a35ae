"""`cenote runtime wake|move`: where a durable runtime is served."""

from __future__ import annotations

import argparse

from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform_line import add_runtime_verb, meant, platform_line
from cenote.terminal.screen import Screen


def add_to(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    waking = add_runtime_verb(verbs, "wake", "have a durable runtime served that is in the store alone", wake)
    waking.add_argument(
        "--partial", action="store_true", help="without what cannot be given back, which is named else"
    )
    moving = add_runtime_verb(verbs, "move", "have a durable runtime served on another machine", move)
    moving.add_argument("--to", metavar="NODE", default="", help="see `cenote status` (default: any other)")


def wake(arguments: argparse.Namespace) -> int:
    with platform_line(meant(arguments.address, wait=arguments.answer_wait)) as line:
        found = line.wake(arguments.name, partial=arguments.partial)
    Screen().line(f"{found.name} is served, as after step {found.steps}")
    return ExitStatus.OK


def move(arguments: argparse.Namespace) -> int:
    with platform_line(meant(arguments.address, wait=arguments.answer_wait)) as line:
        node = line.move(arguments.name, arguments.to)
    Screen().line(f"{arguments.name} is on {node}")
    return ExitStatus.OK
