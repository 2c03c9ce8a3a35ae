"""`python -m benchmarks runtime`: measures, prints a table, writes JSON."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.runtime.contenders import CONTENDERS
from benchmarks.runtime.goals import GOALS
from benchmarks.runtime.machine import machine_line
from benchmarks.runtime.measures import MEASURES
from benchmarks.runtime.parameters import QUICK, Parameters
from benchmarks.runtime.plan import plan
from benchmarks.runtime.process_tree import adopt_orphans
from benchmarks.runtime.report import Run, render_data, render_text
from benchmarks.runtime.sample import Sample
from benchmarks.runtime.session import take_samples

DEFAULT_ROUNDS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="one round with tiny sizes, to see that all of it runs"
    )
    parser.add_argument("--rounds", type=int, help=f"rounds over all contenders (default {DEFAULT_ROUNDS})")
    parser.add_argument(
        "--measure", action="append", choices=[m.name for m in MEASURES], help="only this; repeatable"
    )
    parser.add_argument(
        "--contender", action="append", choices=list(CONTENDERS), help="only this; repeatable"
    )
    parser.add_argument(
        "--json", type=Path, default=Path("benchmarks/results/runtime.json"), help="where data goes"
    )


def run(arguments: argparse.Namespace) -> None:
    """Take all samples; print the table to stdout, progress to stderr."""
    adopt_orphans()
    measures = [m for m in MEASURES if not arguments.measure or m.name in arguments.measure]
    contenders = [name for name in CONTENDERS if not arguments.contender or name in arguments.contender]
    parameters = QUICK if arguments.quick else Parameters()
    turns = plan(measures, contenders, arguments.rounds or (1 if arguments.quick else DEFAULT_ROUNDS))
    result = Run(
        machine=machine_line(),
        parameters=asdict(parameters),
        measures=measures,
        goals=GOALS,
        contenders=contenders,
        reference=next(iter(CONTENDERS)),
        samples=tuple(take_samples(turns, asdict(parameters), _show_progress)),
    )
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(render_data(result), indent=1))
    print(render_text(result), end="")


def _show_progress(sample: Sample) -> None:
    note = f": {sample.reason}" if sample.reason else ""
    print(
        f"round {sample.round + 1} {sample.measure} {sample.contender} {sample.outcome}{note}",
        file=sys.stderr,
    )
