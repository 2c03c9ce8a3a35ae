"""Code that runs beside the state of a real runtime: what it may return, and that it leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote import PythonRuntime
from cenote.runtime.replay.patcher import MAX_ANSWER, RuntimeBuildSandbox
from cenote_security.errors import MalformedValueError, UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.runtime.runtime import HostedRuntime

ROOM = 4096
"""Bytes available for the value besides its description."""


@pytest.fixture
def bench() -> Iterator[RuntimeBuildSandbox]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        runtime.execute("x = 1")
        hosted = runtime.core.backend
        assert isinstance(hosted, HostedRuntime)
        yield RuntimeBuildSandbox(hosted, hosted.rerunning())
        assert ("1", False) == (runtime.execute("x").value, runtime.execute("answer").success)


def test_an_answer_has_a_size(bench: RuntimeBuildSandbox) -> None:
    """A jail's code writes the answer, and its reader may serve others: one that is too large is not read."""
    assert MAX_ANSWER - ROOM == len(bench.beside(f"x, answer = 2, bytes({MAX_ANSWER - ROOM})", "answer"))  # type: ignore[arg-type]
    with pytest.raises(MalformedValueError, match="16777216 bytes of results"):
        bench.beside(f"x, answer = 2, bytes({MAX_ANSWER + 1})", "answer")


def test_code_that_fails_leaves_nothing_either(bench: RuntimeBuildSandbox) -> None:
    """The same holds for code that does not make the requested value."""
    with pytest.raises(UnavailableError, match="did not come to its end"):
        bench.beside("x = 2\n1 / 0", "answer")
    with pytest.raises(Exception, match="answer"):
        bench.beside("x = 2", "answer")
