"""`python -m benchmarks limits`: a table of bombs against the limit of a jail of 256 MiB. Needs root."""

from __future__ import annotations

import argparse

from benchmarks.limits.bombs import BOMBS
from benchmarks.limits.overshoot import Overshoot, measure
from cenote_security.walls.cgroups import ClientGroups, find_site


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="bombs of each kind (default %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    groups = ClientGroups(find_site())
    print("| bomb | held by | ended by | beyond the limit, MiB, at the most | seconds |")
    print("|---|---|---|---|---|")
    try:
        for name, source in BOMBS.items():
            print(
                _line(
                    name,
                    groups.site.version,
                    [measure(groups, "cgroup", source) for _ in range(arguments.rounds)],
                )
            )
            print(
                _line(
                    name, "watchdog", [measure(groups, "watchdog", source) for _ in range(arguments.rounds)]
                )
            )
    finally:
        groups.remove()


def _line(name: str, mode: str, found: list[Overshoot]) -> str:
    worst = max(one.beyond for one in found)
    reasons = "/".join(sorted({one.reason for one in found}))
    seconds = max(one.seconds for one in found)
    return f"| {name} | {mode} | {reasons} | {worst / 2**20:.0f} | {seconds:.2f} |"
