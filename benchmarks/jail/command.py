"""`python -m benchmarks jail`: measures, prints a table, writes JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.jail.parameters import QUICK, Parameters
from benchmarks.jail.participant import roll_call
from benchmarks.jail.report import Run, render_data, render_text
from benchmarks.jail.rounds import samples
from benchmarks.jail.sandboxes import SANDBOXES
from benchmarks.runtime.machine import machine_line
from benchmarks.runtime.process_tree import adopt_orphans

MEMORY_BACKED = Path("/dev/shm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="one round with tiny cells, to see that all of it runs"
    )
    parser.add_argument("--rounds", type=int, help=f"over all sandboxes (default {Parameters().rounds})")
    parser.add_argument("--sandbox", action="append", choices=list(SANDBOXES), help="only this; repeatable")
    parser.add_argument(
        "--json", type=Path, default=Path("benchmarks/results/jail.json"), help="where data goes"
    )


def run(arguments: argparse.Namespace) -> None:
    """Take all samples; print the table to stdout, progress to stderr."""
    adopt_orphans()
    parameters = QUICK if arguments.quick else Parameters()
    parameters = replace(parameters, rounds=arguments.rounds or parameters.rounds)
    result = measure(
        [name for name in SANDBOXES if not arguments.sandbox or name in arguments.sandbox], parameters
    )
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(render_data(result), indent=1))
    print(render_text(result), end="")


def measure(names: list[str], parameters: Parameters) -> Run:
    with tempfile.TemporaryDirectory(prefix="cenote-bench-", dir=MEMORY_BACKED) as scratch:
        Path(scratch).chmod(0o777)  # some jails are other users
        present, absent = roll_call(names, scratch)
        taken = []
        for sample in samples(present, scratch, parameters):
            taken.append(sample)
            print(f"round {sample.round + 1} {sample.measure} {sample.contender}", file=sys.stderr)
    return Run(
        machine=machine_line(),
        parameters=parameters,
        bare={name: kind.bare for name, kind in present.items()},
        absent=absent,
        samples=taken,
    )
