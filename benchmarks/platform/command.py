"""`python -m benchmarks platform`: measures, prints a table, writes JSON."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.platform.goals import GOALS
from benchmarks.platform.measures import MEASURES
from benchmarks.platform.parameters import LONG_IDLE, QUICK, Parameters
from benchmarks.platform.services import SERVICES
from benchmarks.platform.session import take_samples
from benchmarks.runtime.machine import machine_line
from benchmarks.runtime.plan import plan
from benchmarks.runtime.process_tree import adopt_orphans
from benchmarks.runtime.report import Run, render_data, render_text
from benchmarks.runtime.sample import Sample

DEFAULT_ROUNDS = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick", action="store_true", help="one round with tiny sizes, to see that all of it runs"
    )
    size.add_argument("--long", action="store_true", help=f"{LONG_IDLE[0]} idle runtimes")
    parser.add_argument("--rounds", type=int, help=f"rounds over all services (default {DEFAULT_ROUNDS})")
    parser.add_argument(
        "--measure", action="append", choices=[m.name for m in MEASURES], help="only this; repeatable"
    )
    parser.add_argument("--service", action="append", choices=list(SERVICES), help="only this; repeatable")
    parser.add_argument(
        "--json", type=Path, default=Path("benchmarks/results/platform.json"), help="where data goes"
    )


def run(arguments: argparse.Namespace) -> None:
    """Take all samples; print the table to stdout, progress to stderr."""
    adopt_orphans()
    measures = [m for m in MEASURES if not arguments.measure or m.name in arguments.measure]
    services = [name for name in SERVICES if not arguments.service or name in arguments.service]
    parameters = _parameters(arguments)
    turns = plan(measures, services, arguments.rounds or (1 if arguments.quick else DEFAULT_ROUNDS))
    result = Run(
        machine=machine_line(),
        parameters=asdict(parameters),
        measures=measures,
        goals=GOALS,
        contenders=services,
        reference=next(iter(SERVICES)),
        samples=tuple(take_samples(turns, services, parameters, _show_progress)),
    )
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(render_data(result), indent=1))
    print(render_text(result), end="")


def _parameters(arguments: argparse.Namespace) -> Parameters:
    if arguments.quick:
        return QUICK
    return replace(Parameters(), idle=LONG_IDLE) if arguments.long else Parameters()


def _show_progress(sample: Sample) -> None:
    note = f": {sample.reason}" if sample.reason else ""
    print(
        f"round {sample.round + 1} {sample.measure} {sample.contender} {sample.outcome}{note}",
        file=sys.stderr,
    )
