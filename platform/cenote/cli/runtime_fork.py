"""`cenote runtime fork`: further runtimes that begin with the state of one."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform_line import add_address_option, meant, platform_line
from cenote.cli.runtime_facts import as_data
from cenote.cli.runtime_snapshots import target
from cenote.terminal.screen import Screen

if TYPE_CHECKING:
    from cenote_proto.v1 import platform_pb2


def add_to(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "make runtimes that begin with the state of one, and stay until they are removed"
    parser = verbs.add_parser("fork", help=text)
    parser.add_argument("name", metavar="NAME", help="a name, or an id")
    parser.add_argument("--count", type=int, default=1, metavar="N", help="how many (default: 1)")
    parser.add_argument(
        "--step",
        type=target,
        metavar="STEP|LABEL",
        help="begin with a state that is kept, see `cenote runtime show` (default: the present one)",
    )
    parser.add_argument(
        "--as",
        dest="called",
        default="",
        metavar="NAME",
        help="what it is called; of several, NAME-1 and so on (default: NAME-fork-1 and so on)",
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="draw the random numbers that the runtime goes on to draw",
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="without what cannot come along, which is named else",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    add_address_option(parser)
    parser.set_defaults(handler=fork)


def fork(arguments: argparse.Namespace) -> int:
    screen = Screen()
    screen.progress("forking")
    with platform_line(meant(arguments.address, wait=arguments.answer_wait)) as line:
        made = line.fork(_request(arguments))
    if arguments.json:
        screen.line(json.dumps([as_data(each) for each in made], indent=2))
        return ExitStatus.OK
    for each in made:
        screen.line(f"{each.name}  {each.id}  the state of {each.origin.name} after step {each.origin.step}")
    return ExitStatus.OK


def _request(arguments: argparse.Namespace) -> platform_pb2.ForkRuntimeRequest:
    from cenote.runtime.remote.branches import fork_request
    from cenote_worker.hosted.branching import ForkOrder, branch_names, check_count

    check_count(arguments.count)
    order = ForkOrder(at=arguments.step, deterministic=arguments.deterministic, partial=arguments.partial)
    names = branch_names(arguments.called, arguments.count)
    return fork_request(arguments.name, order, arguments.count, names, lease=0.0)
