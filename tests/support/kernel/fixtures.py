"""A kernel in this process with a recording sink; everything it changes is restored afterwards."""

from __future__ import annotations

import asyncio
import builtins
import json
import linecache
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cenote_worker.jail.kernel import CellOutcome, Kernel

Run = Callable[[str], CellOutcome]


class RecordingSink:
    """Stores its input, in order."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, str]] = []
        self.displays: list[dict[str, str | bytes]] = []
        self.names: list[str] = []
        self.drained = 0

    def write(self, stream: str, text: str) -> None:
        text.encode()
        self.writes.append((stream, text))

    def display(self, bundle: dict[str, str | bytes], name: str = "") -> None:
        if name and name in self.names:
            self.displays[self.names.index(name)] = bundle
            return
        self.displays.append(bundle)
        self.names.append(name)

    def clear(self) -> None:
        self.writes.clear()
        self.displays.clear()
        self.names.clear()

    def drain(self) -> None:
        self.drained += 1

    def text(self, stream: str) -> str:
        return "".join(text for name, text in self.writes if name == stream)

    @property
    def out(self) -> str:
        return self.text("stdout")

    @property
    def err(self) -> str:
        return self.text("stderr")


_APART = """
import builtins, json, os, sys
from cenote_worker.jail.kernel import Kernel

class Sink:
    def __init__(self): self.text = {"stdout": "", "stderr": ""}
    def write(self, stream, text): self.text[stream] += text
    def display(self, bundle, name=""): pass
    def clear(self): pass
    def drain(self): pass

sound = dict(vars(builtins))
cells, sink, results = json.load(sys.stdin), Sink(), []
kernel = Kernel(sink)
for step, code in enumerate(cells, 1):
    outcome, text, sink.text = kernel.run_cell(code, step), sink.text, {"stdout": "", "stderr": ""}
    error = outcome.error
    results.append({**text, "value": outcome.value, "type": error and error.type, "error": error and error.message})
builtins.__dict__.update(sound)
os.write(os.open("results.json", os.O_WRONLY | os.O_CREAT), json.dumps(results).encode())
os._exit(0)
"""


@pytest.fixture
def apart(tmp_path: Path) -> Callable[..., Apart]:
    """Runs cells in a kernel of another process: for those that damage or fork it."""

    def run_apart(*cells: str) -> Apart:
        done = subprocess.run(
            [sys.executable, "-c", _APART],
            input=json.dumps(cells), capture_output=True, text=True, cwd=tmp_path, timeout=60,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        results = json.loads((tmp_path / "results.json").read_text())
        return Apart(cells=results, stdout=done.stdout, stderr=done.stderr)

    return run_apart


@dataclass(frozen=True, kw_only=True)
class Apart:
    """Results of cells in another process. stdout, stderr: output through its descriptors."""

    cells: list[dict[str, str | None]]
    stdout: str
    stderr: str


@pytest.fixture
def sink() -> RecordingSink:
    return RecordingSink()


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process as it was before a kernel changed it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setitem(os.environ, "MPLBACKEND", "agg")
    streams, main, hook = (sys.stdout, sys.stderr), sys.modules["__main__"], sys.breakpointhook
    modules = set(sys.modules)
    names, handler, limit = dict(vars(builtins)), signal.getsignal(signal.SIGINT), sys.getrecursionlimit()
    run, traced, thread_hook = asyncio.run, sys.gettrace(), threading.excepthook
    with warnings.catch_warnings():
        yield
    for name in [name for name in linecache.cache if name.startswith("<cell ")]:
        del linecache.cache[name]
    for name in sys.modules.keys() - modules:
        made_here = str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path))
        if made_here or name.partition(".")[0] == "IPython" or name == "webbrowser":
            del sys.modules[name]
    sys.settrace(traced)
    asyncio.run, threading.excepthook = run, thread_hook
    signal.signal(signal.SIGINT, handler)
    sys.stdout, sys.stderr = streams
    sys.modules["__main__"], sys.breakpointhook = main, hook
    sys.setrecursionlimit(limit)
    table = vars(builtins)
    for name in table.keys() - names.keys():
        del table[name]
    table.update(names)


@pytest.fixture
def kernel(sink: RecordingSink, process: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    kernel, opened = Kernel(sink), list[asyncio.AbstractEventLoop]()
    new_event_loop = asyncio.new_event_loop

    def remembered() -> asyncio.AbstractEventLoop:
        opened.append(new_event_loop())
        return opened[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", remembered)
    yield kernel
    asyncio.set_event_loop(None)
    for loop in opened:
        loop.close()  # otherwise it closes itself in the test in which it is collected


@pytest.fixture
def run(kernel: Kernel) -> Run:
    """Runs the next cell."""
    steps = iter(range(1, 10_000))
    return lambda code: kernel.run_cell(code, next(steps))


@pytest.fixture
def good(run: Run) -> Run:
    """Runs the next cell, which must succeed."""

    def run_good(code: str) -> CellOutcome:
        outcome = run(code)
        assert outcome.error is None, str(outcome.error)
        return outcome

    return run_good


@pytest.fixture
def failing(run: Run) -> Callable[[str], object]:
    """Runs the next cell, which must fail, and gives its error."""

    def run_failing(code: str) -> object:
        outcome = run(code)
        assert outcome.error is not None
        assert not outcome.success
        return outcome.error

    return run_failing
