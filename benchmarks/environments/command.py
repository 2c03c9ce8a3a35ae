"""Start times in a built environment and with the client's packages, in turns."""

from __future__ import annotations

import argparse
import time
from importlib.metadata import version
from statistics import median

from cenote import Environment, PythonRuntime, SandboxPolicy
from cenote.environments import build

CODE = "import numpy, pandas\nlen(pandas.DataFrame({'a': numpy.arange(3)}))"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=60, help="starts of each (default %(default)s)")
    parser.add_argument(
        "--find-links", metavar="FOLDER", help="wheels; by default the package index is asked"
    )


def run(arguments: argparse.Namespace) -> None:
    """Both use the same versions of numpy and pandas, so that the packages make no difference."""
    wanted = [f"{name}=={version(name)}" for name in ("numpy", "pandas")]
    wheels = [arguments.find_links] if arguments.find_links else []
    begun = time.perf_counter()
    built = build(Environment(wanted, find_links=wheels, offline=bool(wheels)))
    print(
        f"environment {built.digest[:12]} of {', '.join(wanted)}: {time.perf_counter() - begun:.1f} s to have it"
    )
    policies = {"default": SandboxPolicy(), "environment": SandboxPolicy(environment=built.digest)}
    first = {name: _start(policy) for name, policy in policies.items()}
    taken: dict[str, list[float]] = {name: [] for name in policies}
    for number in range(arguments.rounds):
        for name in sorted(policies, reverse=number % 2 == 1):  # the second one sometimes has an advantage
            taken[name].append(_start(policies[name]))
    pairs = zip(taken["environment"], taken["default"], strict=True)
    ratios = sorted(one / other for one, other in pairs)
    print("| | first start of a process | each later one, median | fastest |")
    print("|---|---|---|---|")
    for name, seconds in taken.items():
        print(
            f"| {name} | {first[name]:.2f} s | {1000 * median(seconds):.1f} ms | {1000 * min(seconds):.1f} ms |"
        )
    quarter = len(ratios) // 4
    print(
        f"environment / default, of {len(ratios)} pairs: median {median(ratios):.2f}, "
        f"middle half {ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f}"
    )


def _start(policy: SandboxPolicy) -> float:
    """Seconds to the first result of a cell that uses both packages."""
    begun = time.perf_counter()
    with PythonRuntime(sandbox=policy) as runtime:
        result = runtime.execute(CODE)
        taken = time.perf_counter() - begun
    assert result.value == "3", result.error
    return taken
