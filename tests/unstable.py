"""A failed test is run once more, alone, after the others. If it passes then, it is unstable, and the run passes.

An unstable test is a fault to fix: the run lists it with the information to reproduce the failure.
pytest-rerunfailures is not enough here: it repeats a test at once, in the same process, under the same load.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from _pytest.terminal import TerminalReporter

FEW = 10
"""If more fail, something is broken: none of them is run again. Tests of one file whose set-up fails count as one,
and are run again together."""

LIMIT = 1_000.0
"""Seconds for one test alone. A test has its own, shorter limit; this one is for hangs outside a test."""


class Unstable:
    """The part of a run that repeats failed tests. It is in the process that prints the summary."""

    def __init__(self) -> None:
        self._loads: dict[str, float] = {}
        self._faults: dict[
            str, list[str]
        ] = {}  # the tests of each: one, or those of a file whose set-up failed
        self._unstable: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self._loads:
            self._loads[report.nodeid] = os.getloadavg()[0]
            fault = report.fspath if report.when == "setup" else report.nodeid
            self._faults.setdefault(fault, []).append(report.nodeid)

    @pytest.hookimpl(trylast=True)  # the processes of a parallel run have ended by then
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not 0 < len(self._faults) <= FEW:
            return
        reporter: TerminalReporter = session.config.pluginmanager.getplugin("terminalreporter")
        for tests in self._faults.values():
            self._unstable += tests if self._pass_alone(session.config, tests) else []
        for category in ("failed", "error"):
            reports = reporter.stats.pop(category, [])
            for report in reports:
                unstable = getattr(report, "nodeid", None) in self._unstable
                reporter.stats.setdefault("unstable" if unstable else category, []).append(report)
        if len(self._unstable) == len(self._loads):
            session.exitstatus = pytest.ExitCode.OK

    def _pass_alone(self, config: pytest.Config, tests: list[str]) -> bool:
        command = [sys.executable, "-m", "pytest", *tests, _order(config)]
        command += ["--long"] if config.getoption("long") else []
        try:
            again = subprocess.run(
                command, cwd=config.rootpath, capture_output=True, timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return again.returncode == pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter, config: pytest.Config) -> None:
        if not self._unstable:
            return
        terminalreporter.section("unstable: failed, then passed alone", yellow=True)
        for report in terminalreporter.stats["unstable"]:
            terminalreporter.write_sep("_", report.nodeid)
            report.toterminal(terminalreporter._tw)
        seeds = f"{_order(config)}, PYTHONHASHSEED={os.environ['PYTHONHASHSEED']}"
        for test in self._unstable:
            terminalreporter.write_line(
                f"UNSTABLE {test} (load {self._loads[test]:.1f}, {seeds})", yellow=True
            )


def _order(config: pytest.Config) -> str:
    """The option that repeats the order of a run, and its random numbers."""
    if not config.pluginmanager.hasplugin("randomly"):
        return "-pno:randomly"
    return f"--randomly-seed={config.getoption('randomly_seed')}"
