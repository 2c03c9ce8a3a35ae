"""What becomes of an atomic cell that failed: its namespace goes back to what it was, then its result is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import JailLostError, RolledBackError
from cenote_worker.results import ExecutionResult, Rollback, StreamName
from cenote_worker.supervisor.protocol import Ask
from cenote_worker.supervisor.requests import JailRequest, Listener, Outcome

_TIMEOUT: Final = 60.0
"""Seconds that going back may take: a thousand times what a gigabyte takes."""


def undoing(request: JailRequest, result: ExecutionResult, before: int) -> JailRequest | None:
    """What is to be asked for before anything else, if the cell is to be undone. It gives the cell's result.

    before: the step that the namespace was at the end of when the cell began.
    """
    if not request.message.execute.atomic or result.success or result.unkept:
        return None
    return JailRequest(
        Ask.ROLLBACK,
        jail_pb2.Request(),
        Undone(request.listener, result),
        timeout=_TIMEOUT,
        step=before,
        key=request.key,
        seat=request.seat,
        code=request.code,
        cause=request.cause,
        token=request.token,
        undoes=result,
    )


@dataclass(frozen=True, slots=True)
class Undone:
    """Hears what became of the return, on behalf of whoever waits for the cell. result: what that has come to."""

    listener: Listener
    result: ExecutionResult

    def output(self, stream: StreamName, text: str) -> bool:
        return self.listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        self.listener.done(self._told(outcome))

    def _told(self, outcome: Outcome) -> ExecutionResult:
        match outcome:
            case Rollback(step=step, amiss=amiss):
                news = (*self.result.news, *amiss)
                return replace(self.result, state="rolled_back", back_at=step, news=news)
            # Whoever was to say that it works has died of it, and another has come.
            case RolledBackError(step=step):
                return replace(self.result, state="rolled_back", back_at=step)
            case JailLostError():
                return replace(self.result, state="lost")
        return replace(self.result, unkept=str(outcome))
