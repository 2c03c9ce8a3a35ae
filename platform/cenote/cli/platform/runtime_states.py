"""`cenote runtime history|graph|blame|diff|snapshot|rollback`: what has happened in a runtime, and its states."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform.connection import add_runtime_verb, attached_runtime, platform_destination
from cenote.runtime.remote.address import Destination
from cenote.terminal.screen import BOLD, DIM, RED, Screen
from cenote.terminal.step_graph import BOX, PLAIN, step_lines
from cenote_security.printable import printable

if TYPE_CHECKING:
    from cenote.harness import Blame, StateDiff, Step
    from cenote.harness.export import Graph
    from cenote.harness.questions.provenance import LiveVariable
    from cenote_worker.execution.results import Rollback, SnapshotInfo
    from cenote_worker.history.events import EnvironmentUsed


_SHOWN = 20
"""Steps in the picture of `cenote runtime show`."""

_PIPE_WIDTH = 100
"""Characters of a line of a picture that goes into a pipe."""

_CODE = 72
"""Characters of a step's first line in a table."""


def add_history(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    history = add_runtime_verb(
        commands, "history", "the steps of a runtime, by all its authors", show_history
    )
    history.add_argument(
        "--all", action="store_true", help="also of lines that were left, and changes without code"
    )
    _add_json(history)
    graph = add_runtime_verb(commands, "graph", "which step took what from which", show_graph)
    graph.add_argument(
        "--format",
        choices=("mermaid", "dot", "json", "text"),
        default="mermaid",
        help="what to write; text is a picture for a terminal (default: mermaid)",
    )
    graph.add_argument(
        "--json", dest="format", action="store_const", const="json", help="the same as --format json"
    )
    blame = add_runtime_verb(
        commands, "blame", "who last wrote a variable, and with which statement", show_blame
    )
    blame.add_argument("symbol", metavar="SYMBOL", help="a variable, or a location such as file:report.md")
    _add_json(blame)
    diff = add_runtime_verb(commands, "diff", "how two states of a runtime differ", show_diff)
    diff.add_argument("a", metavar="A", type=int, help="a step; 0 is the state before the first")
    diff.add_argument("b", metavar="B", type=int, help="another step")
    _add_json(diff)


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def show_history(arguments: argparse.Namespace) -> int:
    from cenote.harness.export import as_data

    screen = Screen()
    with attached_runtime(
        arguments.name, platform_destination(arguments.address, wait=arguments.answer_wait)
    ) as runtime:
        state = runtime.state
        steps = state.history if arguments.all else state.steps
    if arguments.json:
        screen.line(json.dumps([as_data(step) for step in steps], indent=2))
        return ExitStatus.OK
    for step in steps:
        screen.line(_row(step))
    if not steps:
        screen.note("nothing has run")
    return ExitStatus.OK


def show_graph(arguments: argparse.Namespace) -> int:
    from cenote.harness.export import to_dot, to_mermaid

    screen = Screen()
    with attached_runtime(
        arguments.name, platform_destination(arguments.address, wait=arguments.answer_wait)
    ) as runtime:
        graph = runtime.state.graph()
    match arguments.format:
        case "json":
            screen.line(json.dumps(graph, indent=2))
        case "dot":
            screen.write(to_dot(graph))
        case "text":
            write_picture(screen, graph)
        case _:
            screen.write(to_mermaid(graph))
    return ExitStatus.OK


def write_picture(screen: Screen, graph: Graph) -> None:
    """As wide as the terminal; steps that failed, and those of lines that were left, in their styles."""
    width = shutil.get_terminal_size((_PIPE_WIDTH, 0)).columns
    for line in step_lines(graph, width, BOX if screen.draws else PLAIN):
        screen.line(
            line.text.rstrip(), *([] if line.status == "ok" else [RED]), *([] if line.live else [DIM])
        )


def show_blame(arguments: argparse.Namespace) -> int:
    from cenote.harness.export import as_data

    screen = Screen()
    with attached_runtime(
        arguments.name, platform_destination(arguments.address, wait=arguments.answer_wait)
    ) as runtime:
        blame = runtime.state.blame(arguments.symbol)
    if arguments.json:
        step = as_data(blame.step) if blame.step is not None else None
        screen.line(json.dumps({**asdict(replace(blame, step=None)), "step": step}, indent=2))
        return ExitStatus.OK
    for line in _blame_lines(blame):
        screen.line(line)
    return ExitStatus.OK


def show_diff(arguments: argparse.Namespace) -> int:
    from cenote.harness.export import as_data

    screen = Screen()
    with attached_runtime(
        arguments.name, platform_destination(arguments.address, wait=arguments.answer_wait)
    ) as runtime:
        diff = runtime.state.diff(arguments.a, arguments.b)
    if arguments.json:
        data = asdict(replace(diff, left=(), right=()))
        lines = {"left": list(map(as_data, diff.left)), "right": list(map(as_data, diff.right))}
        screen.line(json.dumps({**data, **lines}, indent=2))
        return ExitStatus.OK
    _show_diff(diff, screen)
    return ExitStatus.OK


def _row(step: Step) -> str:
    first = next((line for line in step.code.splitlines() if line.strip()), "")
    code = printable(first or f"[{step.kind} of {', '.join(step.names)}]")[:_CODE]
    when = datetime.fromtimestamp(step.started, UTC).isoformat(timespec="seconds")
    about = f"{step.status:<6}  {step.kept_as or '-':<5}  {printable(step.author) or '-':<10}"
    return f"{step.number:>4}  {when}  {about}  {code}"


def _blame_lines(blame: Blame) -> list[str]:
    lines: list[str] = []
    if blame.step is not None:
        did = "deleted" if blame.deleted else "written"
        lines.append(f"{printable(blame.symbol)} was last {did} by step {blame.step.number}:")
        lines.append(_row(blame.step))
        lines += [f"      {printable(line)}" for line in blame.statement.splitlines()]
        lines += [f"      asked for by {printable(blame.cause)}"] if blame.cause else []
    elif not blame.doubtful:
        lines.append(f"{printable(blame.symbol)} was there before the first step")
    if blame.doubtful:
        steps = ", ".join(map(str, blame.doubtful))
        lines.append(f"it may have been written by these steps, of which not everything is known: {steps}")
    return lines


def _show_diff(diff: StateDiff, screen: Screen) -> None:
    for mark, symbols in (("+", diff.added), ("-", diff.removed), ("~", diff.changed)):
        for symbol in symbols:
            screen.line(f"{mark} {printable(symbol)}")
    for which, steps in ((diff.a, diff.left), (diff.b, diff.right)):
        if steps:
            screen.line(f"from step {diff.ancestor} to {which}:", BOLD)
        for step in steps:
            screen.line(_row(step))
    if diff.unknown:
        steps_unknown = ", ".join(map(str, diff.unknown))
        screen.note(f"there may be more differences: not everything is known of steps {steps_unknown}")


def add_snapshots(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    with attached_runtime(
        arguments.name, platform_destination(arguments.address, wait=arguments.answer_wait)
    ) as runtime:
        kept = runtime.snapshot(arguments.label)
    if arguments.json:
        screen.line(json.dumps({"step": kept.step, "label": kept.label}, indent=2))
        return ExitStatus.OK
    named = f" as {kept.label!r}" if kept.label else ""
    screen.line(f"the state after step {kept.step} is kept{named}")
    return ExitStatus.OK


def roll_back(arguments: argparse.Namespace) -> int:
    screen = Screen()
    with attached_runtime(
        arguments.name, platform_destination(arguments.address, wait=arguments.answer_wait)
    ) as runtime:
        given = runtime.rollback(arguments.to)
    if arguments.json:
        screen.line(json.dumps(asdict(given), indent=2))
        return ExitStatus.OK
    screen.line(f"back at the end of step {given.step}")
    for line in _losses(given):
        screen.note(line)
    return ExitStatus.OK


@dataclass(frozen=True, kw_only=True)
class RuntimeContents:
    """What is kept of a runtime, its variables, and the packages of its last jail.

    graph: of the latest steps of the line to the head. earlier: how many steps come before these.
    """

    snapshots: tuple[SnapshotInfo, ...] = ()
    variables: tuple[LiveVariable, ...] = ()
    packages: EnvironmentUsed | None = None
    graph: Graph | None = None
    earlier: int = 0


def what_is_there(name: str, where: Destination) -> RuntimeContents:
    """Of a runtime that has run something, as its history tells it: a cell that runs is not waited for."""
    with attached_runtime(name, where) as runtime:
        state = runtime.state
        line = state.line(state.head)
        return RuntimeContents(
            snapshots=runtime.snapshots(),
            variables=state.at(state.head).variables,
            packages=state.environment(),
            graph=state.graph([step.number for step in line[-_SHOWN:]]),
            earlier=max(0, len(line) - _SHOWN),
        )


def packages_lines(used: EnvironmentUsed) -> list[str]:
    """None for the packages of the platform's own process."""
    if not used.digest:
        return []
    lock = f", lock {used.lock[:12]}" if used.lock else ""
    return [f"Python {used.python}, {used.digest[:12]}{lock}", *used.packages]


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
