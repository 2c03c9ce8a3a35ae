"""One runtime, authors who are attached to it, and a gate that a cell waits at until the test opens it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from tests.waiting import PATIENCE, until

from cenote.runtime import ExecutionResult, Function, PythonRuntime
from cenote_security.policy import SandboxPolicy


class Gate:
    """A host function that tells when a cell has come to it, and keeps it there."""

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
    """One that keeps no snapshots: a cell that takes its process down takes the jail along."""
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
    """Runs a cell on a thread of its own, and returns when it has come to the gate, or waits for its turn."""
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
def waiting(runtime: PythonRuntime) -> Callable[[], int]:
    """How many requests wait for the jail."""

    def count() -> int:
        supervisor = runtime.core.backend.supervisor  # type: ignore[attr-defined]
        return 0 if supervisor is None else len(supervisor._work.waiting)

    return count
