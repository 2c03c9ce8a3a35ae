"""`cenote runtime ls|create|show|fork|wake|move|rm`: the runtimes of a platform, and where each is served.

The commands that work inside a runtime, and with its states, are in the modules beside.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cenote.cli.arguments import COMMAND, add_flags, add_policy_options, given, policy_from, positive_seconds
from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform import runtime_execution, runtime_states
from cenote.cli.platform.connection import (
    add_address_option,
    add_runtime_verb,
    add_verb,
    platform_connection,
    platform_destination,
)
from cenote.cli.platform.runtime_states import RuntimeContents, target
from cenote.runtime.remote.address import Destination
from cenote.terminal.screen import BOLD, Screen, counted, table
from cenote_security.errors import CenoteError, UsageError
from cenote_security.options import definitions
from cenote_security.policy import SandboxPolicy
from cenote_security.printable import shown_size
from cenote_worker.checkpoints.retention import Retention

if TYPE_CHECKING:
    from cenote_proto.v1 import platform_pb2


def _plain(value: object) -> object:
    """What is set of a message. ProtoJSON would write sizes as text, for JavaScript's sake."""
    from google.protobuf.message import Message

    if isinstance(value, Message):
        return {field.name: _plain(part) for field, part in value.ListFields()}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(part) for part in value]
    return value


def as_data(description: platform_pb2.RuntimeDescription) -> dict[str, Any]:
    """A runtime for `--json`, without what opens it."""
    from cenote_proto.v1 import platform_pb2

    created = datetime.fromtimestamp(description.created, UTC)
    return {
        "name": description.name,
        "id": description.id,
        "state": platform_pb2.RuntimeDescription.State.Name(description.state).lower(),
        "reason": description.reason,
        "created": created.isoformat(timespec="seconds"),
        "node": description.node,
        "address": description.address,
        "clients": description.clients,
        "steps": description.steps,
        "durable": description.durable,
        "parent": description.origin.name,
        "parent_step": description.origin.step if description.HasField("origin") else None,
        "policy": _plain(description.policy),
    }


def add_fork(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    where = platform_destination(arguments.address, wait=arguments.answer_wait)
    with screen.busy("forking"), platform_connection(where) as line:
        made = line.fork(_request(arguments))
    if arguments.json:
        screen.line(json.dumps([as_data(each) for each in made], indent=2))
        return ExitStatus.OK
    for each in made:
        screen.line(f"{each.name}  {each.id}  the state of {each.origin.name} after step {each.origin.step}")
    return ExitStatus.OK


def _request(arguments: argparse.Namespace) -> platform_pb2.ForkRuntimeRequest:
    from cenote.runtime.remote.state_copies import fork_request
    from cenote_worker.runtime.state.branches import ForkOrder, branch_names, check_count

    check_count(arguments.count)
    order = ForkOrder(at=arguments.step, deterministic=arguments.deterministic, partial=arguments.partial)
    names = branch_names(arguments.called, arguments.count)
    return fork_request(arguments.name, order, arguments.count, names, lease=0.0)


def add_places(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    waking = add_runtime_verb(verbs, "wake", "have a durable runtime served that is in the store alone", wake)
    waking.add_argument(
        "--partial", action="store_true", help="without what cannot be given back, which is named else"
    )
    moving = add_runtime_verb(verbs, "move", "have a durable runtime served on another machine", move)
    moving.add_argument("--to", metavar="NODE", default="", help="see `cenote status` (default: any other)")


def wake(arguments: argparse.Namespace) -> int:
    with platform_connection(platform_destination(arguments.address, wait=arguments.answer_wait)) as line:
        found = line.wake(arguments.name, partial=arguments.partial)
    Screen().line(f"{found.name} is served, as after step {found.steps}")
    return ExitStatus.OK


def move(arguments: argparse.Namespace) -> int:
    with platform_connection(platform_destination(arguments.address, wait=arguments.answer_wait)) as line:
        node = line.move(arguments.name, arguments.to)
    Screen().line(f"{arguments.name} is on {node}")
    return ExitStatus.OK


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
    runtime_execution.add_exec(verbs)
    runtime_execution.add_run(verbs)
    showing = add_verb(verbs, "show", "what there is to know of a runtime", show)
    showing.add_argument("name", metavar="NAME", help="a name, or an id")
    showing.add_argument("--json", action="store_true", help="print one JSON object")
    runtime_states.add_history(verbs)
    runtime_states.add_snapshots(verbs)
    add_fork(verbs)
    add_places(verbs)
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
    with platform_connection(platform_destination(arguments.address, wait=arguments.answer_wait)) as line:
        found = [as_data(description) for description in line.runtimes()]
    if arguments.json:
        screen.line(json.dumps(found, indent=2))
    else:
        _table(found, screen)
    return ExitStatus.OK


def create(arguments: argparse.Namespace) -> int:
    if not arguments.name:  # as from a variable that a script has not set: it could not be found again
        raise UsageError("a runtime that stays needs a name: `cenote runtime create NAME`")
    screen = Screen()
    policy = policy_from(arguments)
    where = platform_destination(arguments.address, wait=arguments.answer_wait)
    with screen.busy("making a runtime"), platform_connection(where) as line:
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
    with platform_connection(platform_destination(arguments.address, wait=arguments.answer_wait)) as line:
        found = as_data(line.runtime(arguments.name))
    there = _there(found, platform_destination(arguments.address, wait=arguments.answer_wait))
    if arguments.json:
        contents = {} if there is None else asdict(replace(there, graph=None))
        more = {key: contents.get(key) for key in ("snapshots", "variables", "packages")}
        screen.line(json.dumps({**found, **more}, indent=2))
        return ExitStatus.OK
    for key, value in found.items():
        for name, part in value.items() if isinstance(value, dict) else [(key, value)]:
            if part is not None:
                screen.line(f"{_TITLES.get(name, name):<16} {shown_size(part) if name in _SIZES else part}")
    if there is not None:
        _show_contents(screen, there)
    return ExitStatus.OK


def _show_contents(screen: Screen, there: RuntimeContents) -> None:
    for package in runtime_states.packages_lines(there.packages) if there.packages else ():
        screen.line(f"{'packages':<16} {package}")
    for state in there.snapshots:
        screen.line(f"{'kept':<16} {runtime_states.as_line(state)}")
    for variable in there.variables:
        screen.line(f"{'variable':<16} {runtime_states.as_variable_line(variable)}")
    if there.graph is not None:
        before = f" after {counted(there.earlier, 'earlier one')}" if there.earlier else ""
        screen.line(f"steps{before}, and what they took from each other:", BOLD)
        runtime_states.write_picture(screen, there.graph)


def _there(found: dict[str, Any], where: Destination) -> RuntimeContents | None:
    """What is kept of it, and its variables; None if it cannot be asked, as one without a jail. Where nothing ran, or
    one sleeps, nothing is started.
    """
    if not found["steps"] or found["state"] == "hibernated":
        return RuntimeContents()
    try:
        return runtime_states.what_is_there(found["name"] or found["id"], where)
    except CenoteError:
        return None


def remove(arguments: argparse.Namespace) -> int:
    screen = Screen()
    with platform_connection(platform_destination(arguments.address, wait=arguments.answer_wait)) as line:
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
    rows = [[str(each[column]) for column in columns] for each in found]
    for number, line in enumerate(table(titles, rows)):
        screen.line(line, *(() if number else (BOLD,)))
