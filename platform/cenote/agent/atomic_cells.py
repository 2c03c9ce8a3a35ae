"""A cell that leaves nothing behind when it fails."""

from __future__ import annotations

from dataclasses import replace

from cenote.agent.port import ReversibleRuntime
from cenote_security.errors import NotKeptError, UnavailableError
from cenote_worker.results import ExecutionResult


async def execute_atomically(
    runtime: ReversibleRuntime, code: str, timeout: float | None, cause: str
) -> ExecutionResult:
    """Runs a cell; when it fails the state is as before, and the result says so. Where that cannot be, it is kept."""
    try:
        before = (await runtime.snapshot("")).step
    except UnavailableError:
        return await runtime.execute(code, timeout=timeout, on_output=None, cause=cause)
    result = await runtime.execute(code, timeout=timeout, on_output=None, cause=cause)
    if result.error is None or result.error.reason == "policy" or result.state != "kept":
        return result
    try:
        await runtime.rollback(before)
    except (NotKeptError, UnavailableError):
        return result
    return replace(result, state="rolled_back", back_at=before)
