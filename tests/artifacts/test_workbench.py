"""What is run beside the state of a real runtime: what it may give, and that nothing is left of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote import PythonRuntime
from cenote.runtime.replay.patcher import MAX_ANSWER, RuntimeBuildSandbox
from cenote_security.errors import MalformedValueError, UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.runtime.runtime import HostedRuntime

ROOM = 4096
"""Bytes that are left for how the value is described."""


@pytest.fixture
def bench() -> Iterator[RuntimeBuildSandbox]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        runtime.execute("x = 1")
        hosted = runtime.core.backend
        assert isinstance(hosted, HostedRuntime)
        yield RuntimeBuildSandbox(hosted, hosted.rerunning())
        assert ("1", False) == (runtime.execute("x").value, runtime.execute("answer").success)


def test_an_answer_has_a_size(bench: RuntimeBuildSandbox) -> None:
    """A jail's code writes it, and the process that reads it may serve others: too large a one is not read."""
    assert MAX_ANSWER - ROOM == len(bench.beside(f"x, answer = 2, bytes({MAX_ANSWER - ROOM})", "answer"))  # type: ignore[arg-type]
    with pytest.raises(MalformedValueError, match="16777216 bytes of results"):
        bench.beside(f"x, answer = 2, bytes({MAX_ANSWER + 1})", "answer")


def test_code_that_fails_leaves_nothing_either(bench: RuntimeBuildSandbox) -> None:
    """Nor does code that does not make what it was asked for."""
    with pytest.raises(UnavailableError, match="did not come to its end"):
        bench.beside("x = 2\n1 / 0", "answer")
    with pytest.raises(Exception, match="answer"):
        bench.beside("x = 2", "answer")
