"""The cause of each kind of failure, from real cases: the task, a limit, or the machine."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from tests.waiting import PATIENCE

from cenote.agent import AgentResponse, StopReason
from cenote.agent.act.branches import AllowanceSpentError
from cenote.data.errors import BatchFailedError
from cenote.models import ContextLengthError, ModelError
from cenote.models.errors import ModelUnavailableError
from cenote.runtime import ErrorInfo, ExecutionResult, Function, PythonRuntime
from cenote.security import SecurityChecker, default_rules
from cenote.team.errors import BudgetExceededError
from cenote_security.errors import (
    CallTimeoutError,
    CenoteError,
    JailLostError,
    OutcomeUnknownError,
    QuotaExceededError,
    RolledBackError,
    RuntimeExpiredError,
    RuntimeLostError,
    UnavailableError,
    UnknownNameError,
    UnsafeValueError,
)
from cenote_security.policy import SandboxPolicy
from cenote_security.verdict import INFRASTRUCTURE, TASK, Verdict, limit, of_reason
from cenote_worker.supervisor.frame_parser import read_error
from cenote_worker.wire.results import from_error

SMALL = SandboxPolicy(preload=(), memory="192MiB", disk="4MiB", processes=24)


def broken() -> None:
    raise LookupError("not there")


@pytest.fixture(scope="module")
def shared() -> Iterator[PythonRuntime]:
    checker = SecurityChecker(default_rules())
    with PythonRuntime(
        sandbox=SMALL, functions=[Function(broken, host=True)], security_checker=checker
    ) as made:
        yield made


@pytest.fixture
def runtime(shared: PythonRuntime) -> PythonRuntime:
    """Without the threads that another test has left."""
    shared.reset()
    return shared


TASKS = {
    "an exception": "1 / 0",
    "a syntax error": "1 +",
    "a recursion": "def f(): return f()\nf()",
    "SystemExit": "raise SystemExit(70)",
    "an interrupt of its own": "raise KeyboardInterrupt",
    "the end of its process": "import os\nos._exit(3)",
    "what looks like a fault of ours": "import os\nos._exit(os.EX_SOFTWARE)",
    "a signal": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
    "SIGKILL of its own": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "a rule": "import ctypes",
    "a host function": "broken()",
    "an error that looks like the machine's": "class UnavailableError(Exception): pass\nraise UnavailableError('x')",
}


@pytest.mark.parametrize("code", TASKS.values(), ids=TASKS.keys())
def test_what_code_does_is_the_task_s(runtime: PythonRuntime, code: str) -> None:
    """A model must not learn to have a rollout dropped."""
    result = runtime.execute(code, timeout=30)
    assert TASK == result.verdict, result
    assert result.verdict.counts


LIMITS = {
    "time": "while True: pass",
    "time, and it does not listen": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "memory": "held = bytearray(10**9)",
    "memory, bit by bit": "held = [bytearray(2**20) for _ in iter(int, 1)]",
    "disk": "open('file', 'wb').write(bytes(10**7))",
    "processes": "import threading\nthreads = [threading.Thread(target=threading.Event().wait) for _ in range(99)]\n"
    "for each in threads: each.start()",
}


@pytest.mark.parametrize("met", LIMITS)
def test_a_limit_is_named(runtime: PythonRuntime, met: str) -> None:
    result = runtime.execute(LIMITS[met], timeout=1 if met.startswith("time") else 30)
    assert limit(met.partition(",")[0]) == result.verdict, result


def test_the_time_of_a_runtime_is_a_limit() -> None:
    with PythonRuntime(sandbox=SandboxPolicy(preload=(), runtime_timeout=1)) as runtime:
        assert limit("time") == runtime.execute("while True: pass", timeout=30).verdict


def test_success_has_none(runtime: PythonRuntime) -> None:
    assert runtime.execute("1").verdict is None
    assert ExecutionResult(success=True).verdict is None


def ended_by(runtime: PythonRuntime, act: Callable[[], object]) -> ExecutionResult:
    """The result of an endless cell, during which the function is applied to its runtime."""
    running = threading.Event()
    results: list[ExecutionResult] = []
    code = "print(1, flush=True)\nwhile True: pass"
    thread = threading.Thread(
        target=lambda: results.append(runtime.execute(code, on_output=lambda *_: running.set()))
    )
    thread.start()
    assert running.wait(PATIENCE)
    act()
    thread.join()
    return results[0]


@pytest.mark.parametrize("snapshots", ["auto", "none"])
def test_a_jail_that_is_ended_from_outside(snapshots: Literal["auto", "none"]) -> None:
    """No code inside can reach its first process: the machine is at fault, whatever code was running."""
    with PythonRuntime(sandbox=SandboxPolicy(preload=(), snapshots=snapshots)) as runtime:
        runtime.execute("x = 1")
        warden = runtime.core.backend.supervisor._ends.pidfd  # type: ignore[attr-defined]
        result = ended_by(runtime, lambda: signal.pidfd_send_signal(warden, signal.SIGKILL))
    assert ("lost", "killed") == (result.state, result.error and result.error.reason)
    assert INFRASTRUCTURE == result.verdict
    assert not INFRASTRUCTURE.counts


def test_a_runtime_that_is_closed_under_a_cell() -> None:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        result = ended_by(runtime, runtime.close)
    assert INFRASTRUCTURE == result.verdict


def test_it_is_the_same_on_the_wire() -> None:
    """Clients in other languages get it unchanged."""
    for error in (
        ErrorInfo(type="X", message="", reason="memory"),
        ErrorInfo(type="X", message="", outside=True),
    ):
        message = from_error(error)
        assert (error.verdict.kind, error.verdict.limit) == (message.verdict, message.limit)
        assert error.verdict == read_error(message).verdict


ERRORS: dict[CenoteError, Verdict] = {
    CallTimeoutError(1): limit("time"),
    RuntimeExpiredError(1): limit("time"),
    QuotaExceededError("memory", 1, 1, 1, "", ""): limit("quota"),
    BudgetExceededError("tokens", 1, 0): limit("budget"),
    AllowanceSpentError("x"): limit("tokens"),
    ContextLengthError("x"): limit("context"),
    JailLostError("x"): TASK,
    RolledBackError("x", 1): TASK,
    UnknownNameError("x"): TASK,
    UnsafeValueError("X"): TASK,
    ModelError("x"): INFRASTRUCTURE,
    ModelUnavailableError("x"): INFRASTRUCTURE,
    RuntimeLostError("its machine has left"): INFRASTRUCTURE,
    OutcomeUnknownError("r", "k", "x"): INFRASTRUCTURE,
    UnavailableError("x"): INFRASTRUCTURE,
    BatchFailedError("f", 1, "x", "memory"): limit("memory"),
    BatchFailedError("f", 1, "x", "exception"): TASK,
}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors(error: CenoteError) -> None:
    assert ERRORS[error] == error.verdict


ENDS = {
    StopReason.COMPLETED: None,
    StopReason.MAX_STEPS: limit("steps"),
    StopReason.TIMEOUT: limit("time"),
    StopReason.BUDGET_EXHAUSTED: limit("tokens"),
    StopReason.MODEL_ERROR: INFRASTRUCTURE,
}


@pytest.mark.parametrize("end", StopReason)
def test_ends_of_an_agent(end: StopReason) -> None:
    """Unlisted ends are the model's own fault."""
    assert ENDS.get(end, TASK) == AgentResponse(content="", stop_reason=end).verdict


def test_what_others_use_up_does_not_count() -> None:
    counted = {
        reason: of_reason(reason).counts
        for reason in ("quota", "budget", "steps", "memory", "policy", "lost")
    }
    expected = {"quota": False, "budget": False, "steps": True, "memory": True, "policy": True, "lost": False}
    assert expected == counted
    assert "limit (memory)" == str(of_reason("memory"))
