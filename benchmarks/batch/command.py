"""Jobs of one task: a platform that keeps a process ready for the next job, one that does not, and Ray's own tasks.

In turns, each job after a pause in which a process can be made ready. A task prints the time at which it runs.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import ray

import cenote

CODE = "import time\ntime.time()"

LOCKS = 10
"""RLIMIT_LOCKS, which Linux does not use: a soft limit on it marks a platform's processes, jails included."""

TICK = os.sysconf("SC_CLK_TCK")

STARTS = {
    "with a spare": "",
    "without": "from cenote.gateway.jobs import tables; tables.EXPECTED = 0.0; ",
}
"""By name of a platform: what is run before its command."""

MANY = 20
"""Tasks by which a larger job exceeds a small one, for the processor time of one task."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=10, help="jobs of each kind (default %(default)s)")
    parser.add_argument(
        "--pause", type=float, default=6.0, help="seconds before each job (default %(default)s)"
    )


class BenchedPlatform:
    """A platform in a process of its own, and its clients."""

    def __init__(self, folder: Path, before: str, mark: int) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CENOTE_", "RAY_"))}
        homes = {f"XDG_{each}_HOME": str(folder / each.lower()) for each in ("STATE", "CONFIG")}
        self.environment = kept | homes | {"HOME": str(folder)}
        self._mark = mark
        start = f"import sys; {before}from cenote.cli.main import main; sys.exit(main())"
        words = [sys.executable, "-c", start, "up", "--foreground", "--json", "--port", "0", "--no-http"]
        limits = resource.getrlimit(LOCKS)
        resource.setrlimit(LOCKS, (mark, limits[1]))
        try:
            self._process = subprocess.Popen(
                words, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        finally:
            resource.setrlimit(LOCKS, limits)
        told = "".join(iter(lambda: _line(self._process), "}\n")) + "}"
        self.address = json.loads(told)["address"]
        token = (folder / "config" / "cenote" / "token").read_text().strip()
        self.jobs = cenote.connect(self.address, token).jobs
        self._source = folder / "tasks.jsonl"
        self._source.write_text(json.dumps({"code": CODE}) + "\n")

    def job(self) -> Mapping[str, float]:
        """Seconds from the submission to the task, and to its result."""
        begun = time.time()
        (result,) = self.jobs.submit([{"code": CODE}]).results(follow=True)
        ended = time.time()
        assert result.succeeded, result.error
        return {"to its task": float(result.answer) - begun, "to its result": ended - begun}

    def command(self) -> float:
        """Seconds of a whole command that submits a job and waits for it."""
        words = [sys.executable, "-m", "cenote.cli.main", "job", "submit", str(self._source), "--wait"]
        begun = time.time()
        subprocess.run(words, env=self.environment, check=True, capture_output=True)
        return time.time() - begun

    def of_many(self) -> float:
        """Seconds of processor time that one more task of a job takes, in all processes of the platform."""
        taken = []
        for tasks in (1, 1 + MANY):
            before = self._processor_time()
            assert self.jobs.submit([{"code": CODE}] * tasks).wait().succeeded == tasks
            taken.append(self._processor_time() - before)
        return (taken[1] - taken[0]) / MANY

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def _processor_time(self) -> float:
        """That of ended processes is in their parents' account."""
        return sum(_ticks(pid) for pid in Path("/proc").glob("[0-9]*") if self._has(pid)) / TICK

    def _has(self, process: Path) -> bool:
        try:
            lines = (process / "limits").read_text().splitlines()
        except OSError:  # it has ended just now
            return False
        return any(line.startswith("Max file locks") and line.split()[3] == str(self._mark) for line in lines)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the platform ended with status {process.wait()}")
    return line


def _ticks(process: Path) -> int:
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


def _now() -> float:
    return time.time()


@contextmanager
def _ray_tasks() -> Iterator[Callable[[], Mapping[str, float]]]:
    """A fresh process for each task, as a job has a fresh jail."""
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    task = ray.remote(max_calls=1)(_now)

    def job() -> Mapping[str, float]:
        begun = time.time()
        at = ray.get(task.remote())
        return {"to its task": at - begun, "to its result": time.time() - begun}

    try:
        yield job
    finally:
        ray.shutdown()


def run(arguments: argparse.Namespace) -> None:
    with ExitStack() as opened:
        root = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="batch-", dir="/tmp")))
        rival = opened.enter_context(_ray_tasks())
        platforms = {}
        for number, (name, before) in enumerate(STARTS.items()):
            (folder := root / str(number)).mkdir()
            platforms[name] = BenchedPlatform(folder, before, 200_000 + 1000 * number + os.getpid() % 1000)
            opened.callback(platforms[name].close)
        kinds: dict[str, Callable[[], Mapping[str, float]]] = {
            name: platform.job for name, platform in platforms.items()
        }
        kinds[f"Ray {ray.__version__}, max_calls=1"] = rival
        for job in kinds.values():  # the first one of each loads what all need
            job()
        taken = {name: dict[str, list[float]]() for name in kinds}

        def note(name: str, measured: Mapping[str, float]) -> None:
            for what, seconds in measured.items():
                taken[name].setdefault(what, []).append(seconds)

        for number in range(arguments.rounds):
            for name in sorted(kinds, reverse=number % 2 == 1):
                time.sleep(arguments.pause)
                note(name, kinds[name]())
                if name in platforms:
                    time.sleep(arguments.pause)
                    note(name, {"by the command line": platforms[name].command()})
        plain = "without"  # a spare that is made during the job would count as the tasks'
        note(plain, {"processor time of one more task": platforms[plain].of_many()})
    _print(taken)


def _print(taken: Mapping[str, Mapping[str, list[float]]]) -> None:
    measures = list(dict.fromkeys(what for each in taken.values() for what in each))
    print("| | " + " | ".join(measures) + " |")
    print("|---" * (1 + len(measures)) + "|")
    for name, each in taken.items():
        cells = [f"{median(each[what]):.3f} s" if what in each else "" for what in measures]
        print(f"| {name} | " + " | ".join(cells) + " |")
    first = next(iter(taken))
    for name in taken:
        for what in measures:
            if name != first and what in taken[name] and what in taken[first]:
                pairs = zip(taken[first][what], taken[name][what], strict=True)
                ratios = sorted(one / other for one, other in pairs)
                print(
                    f"{first} / {name}, {what}: median {median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}"
                )
