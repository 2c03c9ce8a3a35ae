"""A runtime as slices of it are verified."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from cenote.harness.slice_verifying import RehearsalError, UnansweredCallError
from cenote.runtime.listeners import BlockingListener
from cenote.runtime.replies import result, value
from cenote_worker.history.step import StepRecord
from cenote_worker.hosted.rehearsal import RecordedHosts, rehearsal
from cenote_worker.hosted.runtime import HostedRuntime


class RuntimeStage:
    """See Stage."""

    def __init__(self, runtime: HostedRuntime, classes: dict[str, type], resume: Callable[[], None]) -> None:
        """classes: that values are rebuilt of. resume: see BlockingListener."""
        self._runtime = runtime
        self._classes = classes
        self._resume = resume

    def keeps(self, step: int) -> Collection[str]:
        noted = [each for each in self._runtime.noted.all() if not each.seat.private and each.step == step]
        return {name for each in noted for name in each.names}

    def present(self, name: str) -> object:
        self._runtime.start()
        return self._value(self._runtime, name, self._resume)

    def again(self, source: str, records: Sequence[StepRecord], name: str, seconds: float) -> object:
        hosts = RecordedHosts([call for record in records for call in record.host_calls])
        fresh = rehearsal(self._runtime, hosts, [record.number for record in records])
        try:
            fresh.start()
            self._run(fresh, source, seconds)
            if hosts.refused is not None:
                raise UnansweredCallError(hosts.refused.target)
            return self._value(fresh, name, fresh.resume)
        except RehearsalError:
            if hosts.refused is not None:  # which is why
                raise UnansweredCallError(hosts.refused.target) from None
            raise
        finally:
            fresh.close()

    def _run(self, fresh: HostedRuntime, source: str, seconds: float) -> None:
        listener = BlockingListener()
        fresh.execute(source, seconds, listener)
        found = result(listener.wait(fresh.resume))
        if not found.success:
            error = found.error
            raise RehearsalError(
                f"its program ends with {error.type}: {error.message}" if error else "its program fails"
            )

    def _value(self, runtime: HostedRuntime, name: str, resume: Callable[[], None]) -> object:
        listener = BlockingListener()
        runtime.fetch(name, listener, opaque=False)
        found: object = value(listener.wait(resume), name, self._classes, (), trusted=False)
        return found
