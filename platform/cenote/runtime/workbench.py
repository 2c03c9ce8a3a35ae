"""A runtime as artifacts are built in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cenote.harness.patch_errors import StateNotKeptError
from cenote.runtime.listeners import BlockingListener
from cenote.runtime.replies import done, result, rollback, value
from cenote_security.errors import MalformedValueError, UnavailableError
from cenote_worker.history.events import SuiteOutcome
from cenote_worker.hosted.reruns import Rerun, Reruns
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.results import ExecutionResult
from cenote_worker.supervisor.edge import ValueReply
from cenote_worker.supervisor.requests import Listener, Outcome

MAX_ANSWER: Final = 16 * 2**20
"""Bytes of what code beside the state gives: results of thousands of tests. Rebuilt here, where a host serves others
too, it takes many times as much."""


class Workbench:
    """See Bench."""

    def __init__(self, runtime: HostedRuntime, reruns: Reruns) -> None:
        self._runtime = runtime
        self._reruns = reruns

    def note(self, outcome: SuiteOutcome) -> None:
        self._reruns.history.tested(outcome)

    def beside(self, code: str, name: str) -> object:
        self._keep()
        head = self._reruns.history.tree.head
        found = self._run(code)
        if found.state == "lost":
            raise UnavailableError("the runtime ended while its tests ran")
        try:
            if not found.success:
                raise UnavailableError(
                    f"what was run beside the state did not come to its end: {found.error}"
                )
            fetched = self._call(lambda listener: self._runtime.fetch(name, listener, opaque=False))
            return value(_bounded(fetched), name, {}, (), trusted=False)
        finally:
            rollback(self._call(lambda listener: self._reruns.rollback(head, listener)))

    def _keep(self) -> None:
        outcome = self._call(lambda listener: self._reruns.keep(listener, label=""))
        if isinstance(outcome, UnavailableError):
            raise StateNotKeptError
        done(outcome, "")
        # Nothing is run beside a state that is not whole, though its last step may have run before it was.
        self._reruns.completed(self._reruns.history.tree.head)

    def _run(self, code: str) -> ExecutionResult:
        """No effect outside comes of it: no record answers its host calls."""
        listener = BlockingListener()
        rerun = Rerun(code=code, record=None, cause="", tentative=True)
        withdraw = self._reruns.run(rerun, listener, lambda _: None)
        try:
            return result(listener.wait(self._runtime.resume))
        except BaseException:
            if withdraw is not None:
                withdraw()
            raise

    def _call(self, queue: Callable[[Listener], None]) -> Outcome:
        listener = BlockingListener()
        queue(listener)
        return listener.wait(self._runtime.resume)


def _bounded(outcome: Outcome) -> Outcome:
    """Raises MalformedValueError for too much; it is not read then."""
    if isinstance(outcome, ValueReply) and outcome.content.size > MAX_ANSWER:
        outcome.content.close()
        raise MalformedValueError(f"more than {MAX_ANSWER} bytes of results; test less at once")
    return outcome
