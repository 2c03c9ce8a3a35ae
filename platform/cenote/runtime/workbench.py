"""A runtime as artifacts are built in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cenote.harness.artifacts.artifact import Artifact
from cenote.harness.patch_errors import StateNotKeptError
from cenote.runtime.backend import Backend
from cenote.runtime.listeners import BlockingListener
from cenote.runtime.replies import done, result, rollback, value
from cenote_security.errors import UnavailableError
from cenote_worker.history.events import Declared, SuiteOutcome
from cenote_worker.hosted.reruns import Rerun, Reruns
from cenote_worker.results import ExecutionResult
from cenote_worker.supervisor.requests import Listener, Outcome


class Workbench:
    """See Bench."""

    def __init__(self, backend: Backend, reruns: Reruns, resume: Callable[[], None], author: str) -> None:
        """resume: see BlockingListener. author: of what is declared."""
        self._backend = backend
        self._reruns = reruns
        self._resume = resume
        self._author = author

    def declare(self, artifacts: Iterable[Artifact]) -> None:
        self._reruns.history.declared(
            Declared(name=one.name, kind=one.kind, depends_on=one.depends_on, author=self._author)
            for one in artifacts
        )

    def drop(self, name: str) -> None:
        self._reruns.history.declared([Declared(name=name, author=self._author, dropped=True)])

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
            fetched = self._call(lambda listener: self._backend.fetch(name, listener, opaque=False))
            return value(fetched, name, {}, (), trusted=False)
        finally:
            rollback(self._call(lambda listener: self._reruns.rollback(head, listener)))

    def _keep(self) -> None:
        outcome = self._call(lambda listener: self._reruns.keep(listener, label=""))
        if isinstance(outcome, UnavailableError):
            raise StateNotKeptError
        done(outcome, "")

    def _run(self, code: str) -> ExecutionResult:
        """No effect outside comes of it: no record answers its host calls."""
        listener = BlockingListener()
        rerun = Rerun(code=code, record=None, cause="", tentative=True)
        withdraw = self._reruns.run(rerun, listener, lambda _: None)
        try:
            return result(listener.wait(self._resume))
        except BaseException:
            if withdraw is not None:
                withdraw()
            raise

    def _call(self, queue: Callable[[Listener], None]) -> Outcome:
        listener = BlockingListener()
        queue(listener)
        return listener.wait(self._resume)
