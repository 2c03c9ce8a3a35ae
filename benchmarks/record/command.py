"""`python -m benchmarks record`: all contenders run each row in turns, cell after cell, timed by the client."""

from __future__ import annotations

import argparse
import platform
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Final

from benchmarks.record import soak
from benchmarks.record.contenders import CONTENDERS, Contender, Jail, lacking
from benchmarks.record.rows import ROWS, Row
from benchmarks.state.cpu import timed

_SOAK: Final = "a cell of a session that grows"


@dataclass(kw_only=True)
class Times:
    """Wall-clock seconds of each repetition, and CPU seconds of all of them together."""

    wall: list[float] = field(default_factory=list)
    cpu: float = 0.0

    @property
    def first(self) -> float:
        return self.wall[0]

    @property
    def later(self) -> float:
        """The median of all but the first."""
        return median(self.wall[1:] or self.wall)

    @property
    def cpu_each(self) -> float:
        return self.cpu / len(self.wall)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="part of a row's name")
    parser.add_argument("--contender", action="append", choices=[*CONTENDERS], help="those named, not all")
    parser.add_argument(
        "--rounds", type=int, default=1, help="how often each row is measured in fresh runtimes"
    )


def run(arguments: argparse.Namespace) -> None:
    wanted = arguments.contender or list(CONTENDERS)
    for reason in filter(None, map(lacking, wanted)):
        print(reason)
    names = [each for each in wanted if not lacking(each)]
    print(f"Python {platform.python_version()}, Linux {platform.release()}, {platform.machine()}")
    print("default: the default policy. bare: snapshots='none', tracking=False. untracked: tracking=False.")
    print(f"{'':44} {'':10} {'first ms':>10} {'later ms':>10} {'CPU ms':>10} {'of bare':>8}  goal")
    for name, row in ROWS.items():
        if arguments.only in name:
            _show(name, row.goal, _measured(row, names, arguments.rounds))
    for name, measure in (
        ("share() of an injected 512 MB array", _shares),
        ("a shared 512 MB array read", _reads),
    ):
        if arguments.only in name:
            _show(name, "<= 5 ms" if measure is _shares else "<= 1.1 of bare", measure(names))
    if arguments.only in _SOAK:
        _show_soak(names)


def _show_soak(names: list[str]) -> None:
    """By the first part of the session and by the last one."""
    print(
        f"{'':44} {'':10} {'first ms':>10} {'last ms':>10} {'CPU, first':>10} {'last':>10} {'of first':>8}  goal"
    )
    with ExitStack() as stack:
        opened = {each: stack.enter_context(closing(CONTENDERS[each]())) for each in names}
        for who, (first, *_, last) in soak.run(opened).items():
            print(
                f"{_SOAK:44} {who:10} {first.wall * 1e3:10.2f} {last.wall * 1e3:10.2f} {first.cpu * 1e3:10.2f}"
                f" {last.cpu * 1e3:10.2f} {last.cpu / first.cpu:8.2f}  {'<= 1.3' if who == 'default' else ''}",
                flush=True,
            )


def _show(name: str, goal: str, found: dict[str, Times]) -> None:
    bare = found.get("bare")
    for who, times in found.items():
        ratio = f"{times.later / bare.later:8.2f}" if bare is not None else f"{'':8}"
        print(
            f"{name:44} {who:10} {times.first * 1e3:10.2f} {times.later * 1e3:10.2f} {times.cpu_each * 1e3:10.2f}"
            f" {ratio}  {goal if who == 'default' else ''}",
            flush=True,
        )


def _measured(row: Row, names: list[str], rounds: int) -> dict[str, Times]:
    found = {each: Times() for each in names}
    for number in range(rounds):
        turn = number % len(names)
        _round(row, [*names[turn:], *names[:turn]], found)
    return found


def _round(row: Row, names: list[str], found: dict[str, Times]) -> None:
    """All are open at once and take turns. The first round's first repetition is reported as the first."""
    with ExitStack() as stack:
        taking_part = dict[str, Contender]()
        for each in names:
            taking_part[each] = stack.enter_context(closing(CONTENDERS[each]()))
            for cell in ("pass", *row.setup):
                taking_part[each].execute(cell)
        for _ in range(row.repeats):
            for each, contender in taking_part.items():
                _, wall, cpu = timed(partial(_execute, contender, row.cells))
                found[each].wall.append(wall)
                found[each].cpu += cpu


def _execute(contender: Contender, cells: tuple[str, ...]) -> None:
    for cell in cells:
        contender.execute(cell)


def _jails(stack: ExitStack, names: list[str]) -> dict[str, Jail]:
    made = {each: CONTENDERS[each]() for each in names if each != "ipykernel"}
    return {each: stack.enter_context(closing(jail)) for each, jail in made.items() if isinstance(jail, Jail)}


def _shares(names: list[str]) -> dict[str, Times]:
    import numpy as np

    from cenote import Variable

    value = np.random.default_rng(0).random(64 * 2**20)
    with ExitStack() as stack:
        found = dict[str, Times]()
        for each, jail in _jails(stack, names).items():
            jail.runtime.inject(Variable("shared", value))
            found[each] = Times()
            for _ in range(3):
                reference, wall, cpu = timed(partial(jail.runtime.share, "shared"))
                reference.release()
                found[each].wall.append(wall)
                found[each].cpu += cpu
    return found


def _reads(names: list[str]) -> dict[str, Times]:
    import numpy as np

    from cenote import Variable

    value = np.random.default_rng(0).random(64 * 2**20)
    with ExitStack() as stack:
        found, jails = dict[str, Times](), _jails(stack, names)
        for jail in jails.values():
            jail.runtime.inject(Variable("shared", value))
        for _ in range(5):
            for each, jail in jails.items():
                _, wall, cpu = timed(partial(jail.execute, "s = float(shared.sum())"))
                found.setdefault(each, Times()).wall.append(wall)
                found[each].cpu += cpu
    return found
