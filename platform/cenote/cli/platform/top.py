"""`cenote top`: the runtimes of a platform and what they do, drawn anew every two seconds."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from cenote.cli.arguments import positive_seconds
from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform.connection import (
    PlatformConnection,
    add_address_option,
    platform_connection,
    platform_destination,
)
from cenote.cli.platform.runtime import as_data
from cenote.cli.platform.status import HEALTH_SECONDS
from cenote.terminal.screen import Screen, counted, live_screen, table
from cenote_security.errors import UnavailableError
from cenote_security.printable import shown_size

INTERVAL: Final = 2.0

_TITLES: Final = ("NAME", "STATE", "STEPS", "STEPS/S", "CLIENTS", "MEMORY", "AGE", "MACHINE")

_ORDER: Final = {"ready": 0, "starting": 1, "lost": 2, "hibernated": 3}


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("top", help="the runtimes of a platform and what they do, until Ctrl-C")
    add_address_option(parser)
    parser.add_argument(
        "--interval",
        type=positive_seconds,
        default=INTERVAL,
        metavar="SECONDS",
        help="between two looks (default %(default)g)",
    )
    parser.add_argument("--once", action="store_true", help="one look, as in a pipe")
    parser.add_argument("--json", action="store_true", help="one look, as one JSON object")
    parser.set_defaults(handler=handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """What was there at one moment. at: seconds of a clock that does not go back; now: since the epoch."""

    at: float
    now: float
    ready: bool
    causes: tuple[str, ...]
    machines: tuple[Mapping[str, Any], ...]
    runtimes: tuple[Mapping[str, Any], ...]


def handle(arguments: argparse.Namespace) -> int:
    screen = Screen()
    with platform_connection(platform_destination(arguments.address, wait=arguments.answer_wait)) as line:
        seen = look(line)
        if arguments.json:
            screen.line(json.dumps(_as_json(seen), indent=2))
            return ExitStatus.OK
        if arguments.once or not sys.stdout.isatty():
            for text in page(seen, None):
                screen.line(text)
            return ExitStatus.OK
        with live_screen() as drawn:
            drawn.draw(page(seen, None))
            while True:
                time.sleep(arguments.interval)
                try:
                    seen, before = look(line), seen
                except UnavailableError as error:
                    drawn.draw([f"the platform does not answer: {error}", "", *page(seen, None)])
                    continue
                drawn.draw(page(seen, before))


def look(line: PlatformConnection) -> FleetSnapshot:
    """Asks the platform. Raises what it refuses with, UnavailableError."""
    described, health = line.describe(), line.health(HEALTH_SECONDS)
    runtimes = [as_data(each) for each in line.runtimes()]
    return FleetSnapshot(
        at=time.monotonic(),
        now=time.time(),
        ready=health.ready,
        causes=tuple(f"{cause.subject}: {cause.text}" for cause in health.causes),
        machines=tuple(
            {
                "id": node.id,
                "runtimes": node.runtimes,
                "references": node.references,
                "reference_bytes": node.reference_bytes,
                "silent": node.silent,
            }
            for node in described.nodes
        ),
        runtimes=tuple(runtimes),
    )


def page(seen: FleetSnapshot, before: FleetSnapshot | None) -> list[str]:
    """The lines to show: a summary, the machines, the runtimes that did most since `before` first."""
    rates = steps_per_second(seen, before)
    states = [str(each["state"]) for each in seen.runtimes]
    counts = ", ".join(f"{states.count(state)} {state}" for state in _ORDER if state in states)
    lines = [
        f"{'ready' if seen.ready else 'NOT READY'}   {counted(len(states), 'runtime')}"
        f"{f' ({counts})' if counts else ''}   {sum(rates.values()):.1f} steps/s"
    ]
    lines += [f"  {cause}" for cause in seen.causes]
    lines += [_machine(each) for each in seen.machines]
    if not seen.runtimes:
        return [*lines, "", "no runtimes; `cenote runtime create NAME` makes one"]
    runtimes = sorted(
        seen.runtimes,
        key=lambda one: (-rates.get(one["id"], 0.0), _ORDER.get(one["state"], 9), one["name"]),
    )
    return [*lines, "", *table(_TITLES, [_row(one, rates, seen.now) for one in runtimes])]


def steps_per_second(seen: FleetSnapshot, before: FleetSnapshot | None) -> dict[str, float]:
    """By the id of a runtime, for those that were there before. A rollback is no negative number of steps."""
    if before is None or seen.at <= before.at:
        return {}
    former = {each["id"]: each["steps"] for each in before.runtimes}
    return {
        each["id"]: max(each["steps"] - former[each["id"]], 0) / (seen.at - before.at)
        for each in seen.runtimes
        if each["id"] in former
    }


def _row(one: Mapping[str, Any], rates: Mapping[str, float], now: float) -> Sequence[str]:
    rate = rates.get(one["id"])
    memory = (one["policy"] or {}).get("memory", 0)
    return (
        str(one["name"]),
        str(one["state"]),
        str(one["steps"]),
        "" if rate is None else f"{rate:.1f}",
        str(one["clients"]),
        shown_size(memory) if memory else "",
        age(now - datetime.fromisoformat(one["created"]).timestamp()),
        str(one["node"]),
    )


def age(seconds: float) -> str:
    """In the largest unit of which there is one."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(max(seconds, 0))}s"


def _machine(node: Mapping[str, Any]) -> str:
    if node["silent"]:
        return f"  machine {node['id']}: does not answer"
    return (
        f"  machine {node['id']}: {counted(node['runtimes'], 'runtime')}, "
        f"{counted(node['references'], 'shared value')}"
        f"{' (' + shown_size(node['reference_bytes']) + ')' if node['references'] else ''}"
    )


def _as_json(seen: FleetSnapshot) -> dict[str, Any]:
    return {
        "ready": seen.ready,
        "causes": list(seen.causes),
        "machines": [dict(each) for each in seen.machines],
        "runtimes": [dict(each) for each in seen.runtimes],
    }
