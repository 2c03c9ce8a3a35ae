"""`cenote team ls|show|run|cancel|rm`: teams whose loop runs on a platform. Scripts make them; see docs/teams.md."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cenote.cli.arguments import COMMAND
from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform.connection import add_verb, platform_destination
from cenote.terminal.screen import BOLD, Screen

if TYPE_CHECKING:
    from cenote.connection import Platform
    from cenote.platform_team import PlatformTeam, TeamNews, TeamStatus

_COLUMNS = ("name", "state", "runs", "tokens", "id")
_SHOWN = 400
"""Characters of one piece of news on a screen."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("team", help="list, follow, set to work and stop teams of a platform")
    verbs = parser.add_subparsers(title="commands", metavar=COMMAND, required=True)
    listing = add_verb(verbs, "ls", "list your teams", list_all)
    listing.add_argument("--json", action="store_true", help="print one JSON array")
    showing = add_verb(verbs, "show", "members, runs and steps of a team", show)
    showing.add_argument("name", metavar="NAME")
    showing.add_argument("--json", action="store_true", help="print one JSON object")
    running = add_verb(verbs, "run", "set a team to work on a task, and follow it", run)
    running.add_argument("name", metavar="NAME")
    running.add_argument("task", metavar="TASK")
    running.add_argument("--detach", action="store_true", help="print the number of the run and leave")
    running.add_argument(
        "--json", action="store_true", help="print the run as one JSON object, when it is over"
    )
    stopping = add_verb(verbs, "cancel", "stop a run", cancel)
    stopping.add_argument("name", metavar="NAME")
    stopping.add_argument("run", metavar="RUN", nargs="?", type=int, default=0, help="by default the newest")
    removing = add_verb(verbs, "rm", "end teams and forget them", remove)
    removing.add_argument("names", nargs="+", metavar="NAME")


def list_all(arguments: argparse.Namespace) -> int:
    screen, found = Screen(), _platform(arguments).teams()
    if arguments.json:
        screen.line(json.dumps([as_data(status) for status in found], indent=2))
    elif not found:
        screen.note("no teams; a script makes one with platform.team(NAME)")
    else:
        _table(found, screen)
    return ExitStatus.OK


def show(arguments: argparse.Namespace) -> int:
    screen, status = Screen(), _platform(arguments).team(arguments.name).status()
    if arguments.json:
        screen.line(json.dumps(as_data(status), indent=2))
        return ExitStatus.OK
    screen.line(f"{status.name}: {', '.join(status.members)}", BOLD)
    for each in status.runs:
        screen.line(f"  run {each.number}: {each.state} {_cut(each.error or each.answer)}".rstrip())
    for step in status.steps:
        screen.line(f"  step of {step.agent}: {step.status} {_cut(step.error or step.task)}".rstrip())
    return ExitStatus.OK


def run(arguments: argparse.Namespace) -> int:
    return asyncio.run(_run(arguments, Screen()))


def cancel(arguments: argparse.Namespace) -> int:
    _platform(arguments).team(arguments.name).cancel(arguments.run)
    return ExitStatus.OK


def remove(arguments: argparse.Namespace) -> int:
    screen, platform = Screen(), _platform(arguments)
    for name in arguments.names:
        platform.team(name).delete()
        screen.line(f"removed {name}")
    return ExitStatus.OK


def as_data(status: TeamStatus) -> dict[str, Any]:
    """A team for `--json`; values are not in it."""
    told = asdict(status)
    for each in told["runs"]:
        del each["references"]
    return told


async def _run(arguments: argparse.Namespace, screen: Screen) -> int:
    team = _platform(arguments).team(arguments.name)
    heard = team.status().newest
    number = await team.start(arguments.task)
    if arguments.detach:
        screen.line(str(number))
        return ExitStatus.OK
    if not arguments.json:
        await _follow(team, heard, number, screen)
    ended = await team.wait(number)
    if arguments.json:
        screen.line(json.dumps({"number": number, "status": ended.status, "answer": ended.answer}, indent=2))
    else:
        screen.line(ended.answer)
    return ExitStatus.OK


async def _follow(team: PlatformTeam, after: int, number: int, screen: Screen) -> None:
    async for news in team.follow(after):
        if news.run == number:
            screen.note(_line(news))
            if not news.agent and news.type in ("done", "failed", "cancelled"):
                return


def _line(news: TeamNews) -> str:
    who = f"{news.agent}: " if news.agent else ""
    return f"{who}{news.type} {_cut(news.content)}".rstrip()


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} ..."


def _platform(arguments: argparse.Namespace) -> Platform:
    from cenote.connection import Platform

    return Platform(platform_destination(arguments.address, wait=arguments.answer_wait))


def _table(found: list[TeamStatus], screen: Screen) -> None:
    rows = [_COLUMNS, *map(_row, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        screen.line(cells.rstrip(), *(() if number else (BOLD,)))


def _row(status: TeamStatus) -> tuple[str, ...]:
    state = status.runs[0].state if status.runs else "idle"
    return (status.name, state, str(len(status.runs)), str(status.tokens), status.id)
