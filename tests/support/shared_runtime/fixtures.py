"""One runtime, authors attached to it, and a gate at which a cell waits until the test opens it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from tests.places import Place
from tests.waiting import PATIENCE, until

from cenote.runtime import ExecutionResult, Function, PythonRuntime
from cenote_security.policy import SandboxPolicy


class Gate:
    """A host function that reports that a cell has reached it, and blocks the cell."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        self.opened.wait()


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    """A runtime with the default policy; the test is its owner."""
    with PythonRuntime() as runtime:
        yield runtime


@pytest.fixture
def forgetful() -> Iterator[PythonRuntime]:
    """One without snapshots: a cell that ends its process ends the jail."""
    with PythonRuntime(sandbox=SandboxPolicy(snapshots="none")) as runtime:
        yield runtime


@pytest.fixture
def good() -> Callable[[PythonRuntime, str], ExecutionResult]:
    """Runs a cell that must succeed."""

    def run(runtime: PythonRuntime, code: str) -> ExecutionResult:
        result = runtime.execute(code)
        assert result.success, str(result.error)
        return result

    return run


@pytest.fixture
def gate(runtime: PythonRuntime) -> Iterator[Gate]:
    """In the runtime's namespace as `gate()`."""
    gate = Gate()
    runtime.inject(Function(gate.wait, name="gate", host=True))
    yield gate
    gate.opened.set()


@pytest.fixture
def start(gate: Gate, waiting: Callable[[], int]) -> Iterator[Callable[..., Future[ExecutionResult]]]:
    """Runs a cell on a separate thread, and returns when it has reached the gate or waits for its turn."""
    with ThreadPoolExecutor(20) as pool:

        def run(call: PythonRuntime, code: str, *, waits: bool = False) -> Future[ExecutionResult]:
            before = waiting()
            future = pool.submit(call.execute, code)
            if waits:
                until(lambda: waiting() == before + 1)
            else:
                assert gate.reached.wait(PATIENCE)
            return future

        yield run
        gate.opened.set()


@pytest.fixture
def waiting(runtime: PythonRuntime, where: Place) -> Callable[[], int]:
    """Number of requests that wait for the jail."""
    hosted = where.hosted(runtime)

    def count() -> int:
        supervisor = hosted.supervisor
        return 0 if supervisor is None else len(supervisor._work.waiting)

    return count
