"""`python -m benchmarks state`: measures, prints a table, writes JSON."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.runtime.machine import machine_line
from benchmarks.runtime.plan import plan
from benchmarks.runtime.process_tree import adopt_orphans
from benchmarks.runtime.report import Run, render_data, render_text
from benchmarks.runtime.sample import Sample
from benchmarks.runtime.session import take_samples
from benchmarks.state.goals import GOALS
from benchmarks.state.keepers import KEEPERS
from benchmarks.state.measures import MEASURES
from benchmarks.state.parameters import QUICK, Parameters

DEFAULT_ROUNDS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="one round with tiny sizes, to see that all of it runs"
    )
    parser.add_argument("--rounds", type=int, help=f"rounds over all contenders (default {DEFAULT_ROUNDS})")
    parser.add_argument(
        "--measure", action="append", choices=[m.name for m in MEASURES], help="only this; repeatable"
    )
    parser.add_argument("--contender", action="append", choices=list(KEEPERS), help="only this; repeatable")
    parser.add_argument(
        "--scratch", type=Path, help="where state is stored (default: temporary files' place)"
    )
    parser.add_argument(
        "--json", type=Path, default=Path("benchmarks/results/state.json"), help="where data goes"
    )


def run(arguments: argparse.Namespace) -> None:
    """Take all samples; print the table to stdout, progress to stderr."""
    adopt_orphans()
    measures = [m for m in MEASURES if not arguments.measure or m.name in arguments.measure]
    contenders = [name for name in KEEPERS if not arguments.contender or name in arguments.contender]
    parameters = asdict(QUICK if arguments.quick else Parameters())
    turns = plan(measures, contenders, arguments.rounds or (1 if arguments.quick else DEFAULT_ROUNDS))
    samples = take_samples(turns, parameters, _show_progress, "benchmarks.state.driver", arguments.scratch)
    result = Run(
        machine=machine_line(),
        parameters=parameters,
        measures=measures,
        goals=GOALS,
        contenders=contenders,
        reference=next(iter(KEEPERS)),
        samples=tuple(samples),
    )
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(render_data(result), indent=1))
    print(render_text(result), end="")


def _show_progress(sample: Sample) -> None:
    """Shows progress with figures, since a run takes long and may be stopped early."""
    figures = ", ".join(f"{figure} {value:.4g}" for figure, value in sample.figures.items())
    told = f"{sample.outcome}: {sample.reason or figures}"
    print(f"round {sample.round + 1} {sample.measure} {sample.contender} {told}", file=sys.stderr, flush=True)
