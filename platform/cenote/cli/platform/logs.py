"""`cenote logs`: what happened on the platform of this user, from its log and its audit log in one order."""

from __future__ import annotations

import argparse
import heapq
import json
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform.audit import entry_count, id_names, moment, tenant_id
from cenote.terminal.screen import DIM, RED, YELLOW, Screen
from cenote_security.errors import UnavailableError

if TYPE_CHECKING:
    from cenote.gateway.audit.reader import IdNames
    from cenote.gateway.process.log_reader import LogEvent
    from cenote.gateway.store.state_folder import StateFolder

_LOOK_EVERY: Final = 0.5
"""Seconds between two looks for events that have come."""

_LEVELS: Final = ("debug", "info", "warning", "error", "critical")

_COLOURS: Final = {"debug": DIM, "warning": YELLOW, "error": RED, "critical": RED}


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("logs", help="what happened on the platform here: its log and its audit log")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with what is to come, until Ctrl-C"
    )
    parser.add_argument(
        "--runtime", default="", metavar="NAME", help="only about this runtime, by name or id"
    )
    parser.add_argument("--tenant", default="", metavar="NAME", help="only about this tenant, by name or id")
    parser.add_argument(
        "--level", choices=_LEVELS, default="info", help="only so severe (default: %(default)s)"
    )
    parser.add_argument(
        "--since",
        type=moment,
        default=0,
        metavar="TIME",
        help='not older, such as "2026-11-22T08:00Z" or "2h"',
    )
    parser.add_argument("--limit", type=entry_count, metavar="N", help="only the last N of them")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    from cenote.gateway.process.log_reader import EventFilter
    from cenote.gateway.store.state_folder import state_folder

    screen, state = Screen(), state_folder()
    if not state.log.exists() and not state.audit.exists():
        raise UnavailableError(f"no platform has written a log to {state.path}; `cenote up` starts one")
    names = id_names()
    events = _Events(state, names)
    wanted = EventFilter(
        level=arguments.level,
        since=arguments.since / 1e6,
        tenant=tenant_id(arguments.tenant),
        runtime=arguments.runtime,
    )
    found = (event for event in events.new() if wanted.takes(event, names.runtimes))
    for event in found if arguments.limit is None else deque(found, arguments.limit):
        _show(event, screen, names, as_json=arguments.json)
    while arguments.follow:
        time.sleep(_LOOK_EVERY)
        for event in events.new():
            if wanted.takes(event, names.runtimes):
                _show(event, screen, names, as_json=arguments.json)
    return ExitStatus.OK


class _Events:
    """Both logs, each read from where it was read to."""

    def __init__(self, state: StateFolder, names: IdNames) -> None:
        from cenote.gateway.process.log_reader import LogTail

        self._log = LogTail(state.log)
        self._audit = state.audit
        self._names = names
        self._last = 0

    def new(self) -> Iterator[LogEvent]:
        """What has come since the last call, in order."""
        from cenote.gateway.process.log_reader import parse_log

        return heapq.merge(parse_log(self._log.lines()), self._entries(), key=lambda event: event.time)

    def _entries(self) -> Iterator[LogEvent]:
        from cenote.gateway.audit.folder import log_files
        from cenote.gateway.audit.reader import EntrySelection, selected
        from cenote.gateway.process.log_reader import from_audit

        files = log_files(self._audit)
        begun = [path for path in files if int(path.stem) <= self._last + 1]
        for entry in selected(files[max(len(begun) - 1, 0) :], EntrySelection(), self._names):
            if entry.number > self._last:
                self._last = entry.number
                yield from_audit(entry)


def _show(event: LogEvent, screen: Screen, names: IdNames, *, as_json: bool) -> None:
    from cenote.gateway.process.log_reader import described

    if not as_json:
        colour = _COLOURS.get(event.level)
        screen.line(described(event, names.tenants, names.runtimes), *((colour,) if colour else ()))
        return
    facts = asdict(event) | {
        "time": datetime.fromtimestamp(event.time, UTC).isoformat(timespec="milliseconds")
    }
    facts |= {
        "tenant_name": names.tenants.get(event.tenant, ""),
        "runtime_name": names.runtimes.get(event.runtime, ""),
    }
    screen.line(json.dumps({name: fact for name, fact in facts.items() if fact not in ("", 0, {})}))
