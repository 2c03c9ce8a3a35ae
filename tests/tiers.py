"""The tests that `make test` runs, with --quick: all except those marked `slow`, and a few of each `sweep` family.

`make test-all` and CI run everything, and so does pytest without that option.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from _pytest.terminal import TerminalReporter
from tests.variants import variant_of

CASES = 2
"""Of a family, unless its mark has another number."""

LONG_SECONDS = 8.0
"""A test of `make test` that takes longer is named at the end of the run. A limit would depend on the machine."""


def quick(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The remaining tests."""
    families: dict[tuple[str, ...], list[pytest.Item]] = {}
    for item in items:
        families.setdefault((item.nodeid.partition("[")[0], *variant_of(item)), []).append(item)
    chosen = {item for family in families.values() for item in _examples(family)}
    return [item for item in items if item in chosen]


def _examples(family: Sequence[pytest.Item]) -> Sequence[pytest.Item]:
    """At equal distances in the order of their ids: the same in each run, for any order of execution."""
    family = [item for item in family if not item.get_closest_marker("slow")]
    sweep = family[0].get_closest_marker("sweep") if family else None
    if sweep is None:
        return family
    family.sort(key=lambda item: item.nodeid)
    return family[:: math.ceil(len(family) / sweep.kwargs.get("cases", CASES))]


class LongTests:
    """Names the tests of a run with --quick that took long."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":  # one of the tests makes what several share
            self._seconds[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        found = [(test, spent) for test, spent in self._seconds.most_common() if spent > LONG_SECONDS]
        if found:
            terminalreporter.section(
                "took long: marks `slow` and `sweep` are for these, or the machine was busy"
            )
            terminalreporter.write("".join(f"{spent:.1f} s {test}\n" for test, spent in found))
