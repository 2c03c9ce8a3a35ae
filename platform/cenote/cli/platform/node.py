"""`cenote node drain|resume`: a machine of a platform that is to leave its cluster, or stays after all."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Final

from cenote.cli.arguments import COMMAND
from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform.connection import (
    add_verb,
    platform_connection,
    platform_destination,
    seconds,
)
from cenote.terminal.screen import Screen, counted

if TYPE_CHECKING:
    from cenote_proto.v1 import platform_pb2

EPILOG = """Exit status: 0 nothing is left there; 1 what is printed is still there: runtimes that are not durable,
which end with the machine, or durable ones that could not leave yet. The machine stays drained until
`cenote node resume`, or until Ray is started there again."""

LOOK_EVERY: Final = 1.0
"""Seconds. Each look has durable runtimes leave for a while."""

DEFAULT_PATIENCE: Final = 600.0

_ENDS: Final = "not durable: ends with the machine"
_STAYS: Final = "durable: had cells all the time, or has a value that cannot be stored"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("node", help="prepare a machine of the platform for its end")
    verbs = parser.add_subparsers(title="commands", metavar=COMMAND, required=True)
    text = "have a machine take no more runtimes, and its durable ones leave it, without an interrupted cell"
    draining = add_verb(verbs, "drain", text, drain, waits=False)
    draining.epilog = EPILOG
    draining.add_argument(
        "--wait",
        type=seconds,
        default=DEFAULT_PATIENCE,
        metavar="SECONDS",
        help="for durable runtimes to leave, each after its cell (default: 600; 0 for no wait)",
    )
    resuming = add_verb(verbs, "resume", "have a drained machine take runtimes again", resume)
    for verb in (draining, resuming):
        verb.add_argument("node", metavar="NODE", help="see `cenote status`")
        verb.add_argument("--json", action="store_true", help="print one JSON object")


def drain(arguments: argparse.Namespace) -> int:
    screen, until = Screen(), time.monotonic() + arguments.wait
    with platform_connection(platform_destination(arguments.address)) as line:
        left = line.drain(arguments.node, resume=False)
        with screen.busy(f"draining {arguments.node}") as going_on:
            while any(one.durable for one in left) and time.monotonic() < until:
                going_on(f"{counted(sum(one.durable for one in left), 'durable runtime')} to leave")
                time.sleep(LOOK_EVERY)
                left = line.drain(arguments.node, resume=False)
    _show(screen, arguments, left)
    return ExitStatus.FAILED if left else ExitStatus.OK


def resume(arguments: argparse.Namespace) -> int:
    with platform_connection(platform_destination(arguments.address, wait=arguments.answer_wait)) as line:
        left = line.drain(arguments.node, resume=True)
    screen = Screen()
    if arguments.json:
        _show(screen, arguments, left)
    else:
        screen.line(f"{arguments.node} takes runtimes")
    return ExitStatus.OK


def _show(screen: Screen, arguments: argparse.Namespace, left: list[platform_pb2.NodeRuntime]) -> None:
    if arguments.json:
        told = [{"id": one.id, "name": one.name, "durable": one.durable} for one in left]
        screen.line(json.dumps({"node": arguments.node, "runtimes": told}, indent=2))
        return
    if not left:
        screen.line(f"{arguments.node} has no runtimes; it can be ended")
        return
    screen.line(f"{arguments.node} still has {counted(len(left), 'runtime')}:")
    for one in left:
        fate = _STAYS if one.durable else _ENDS
        screen.line(f"  {one.name or one.id}  {fate}")
