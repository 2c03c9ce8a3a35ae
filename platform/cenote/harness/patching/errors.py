"""What can be wrong with a patch. Nothing ran."""

from __future__ import annotations

from cenote_security.errors import CenoteError, UsageError
from cenote_worker.history.step import StepRecord


class PatchConflictError(UsageError):
    """A patch does not fit the history. reason: where and why. hunk: of a diff, the one that does not fit."""

    def __init__(self, reason: str, hunk: str = "") -> None:
        super().__init__(reason, hunk)
        self.reason = reason
        self.hunk = hunk

    def __str__(self) -> str:
        where = f":\n{self.hunk}" if self.hunk else ""
        return f"the patch does not fit: {self.reason}{where}"


class UnknownStepError(PatchConflictError):
    """The line has no such step."""

    def __init__(self, number: int) -> None:
        super().__init__(f"this line has no step {number}")
        self.number = number


class StalePlanError(UsageError):
    """The runtime went on since the plan was made."""

    def __init__(self, planned: int, head: int) -> None:
        super().__init__(planned, head)
        self.planned = planned
        self.head = head

    def __str__(self) -> str:
        return (
            f"the plan was made after step {self.planned}, and step {self.head} is the head now; plan again"
        )


class StateNotKeptError(UsageError):
    """A state is not kept, so that a failure could not be undone. reason: which, and why."""

    def __init__(
        self, reason: str = "the present state cannot be kept (threads may be running in it)"
    ) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.reason}, so that a failure in the middle could not be undone; pass "
            "ApplyOptions(atomic=False) to go on without that"
        )


class NoWayError(UsageError):
    """From what is kept, the state of the patched history cannot be made. reason: what is missing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the patch cannot be applied to this state: {self.reason}. Patch a later step, or `reset` the runtime, "
            "put in what was put in, and run the steps again; `snapshot` with a label keeps a state for longer"
        )


class NotPutBackError(CenoteError):
    """A patch was not applied, and the state before it was given up meanwhile, since memory was short.

    The live state is that of `step`, the nearest one before that was still kept; None: it is in the middle of the
    patch. head: the step that it was at.
    """

    def __init__(self, head: int, step: int | None) -> None:
        super().__init__(head, step)
        self.head = head
        self.step = step

    def __str__(self) -> str:
        now = "in the middle of the patch" if self.step is None else f"that after step {self.step}"
        return (
            f"the patch was not applied, and the state after step {self.head} was given up meanwhile for want of "
            f"memory: the state is {now} now; run again what is missing"
        )


class StepNotRepeatedError(UsageError):
    """A step would have to be run again, and cannot be. record: the step."""

    def __init__(self, record: StepRecord) -> None:
        super().__init__(record.number)
        self.record = record

    def __str__(self) -> str:
        return f"{not_repeated(self.record)}; patch a step behind it"


def not_repeated(record: StepRecord) -> str:
    """Why a step is not done again that has no code of its own, or that of a namespace of its author's."""
    again = f"step {record.number} would have to be repeated, and "
    if record.kind == "unrecorded":
        return f"{again}there is no record of what was done until then"
    if record.kind == "process":
        shown = record.code.splitlines()[0][:80]
        return f"{again}was a process beside the namespace ({shown}), which is not run again"
    if record.kind == "upload":
        return (
            f"{again}the content of {', '.join(record.names)}, which a client wrote, was too much to be kept"
        )
    if record.kind == "injection" and not record.private:
        return f"{again}what it has put in, {_spoken(record)}, is not kept any more"
    return f"{again}is in a private namespace"


def not_put_in_again(record: StepRecord, why: str) -> str:
    """Why an injection is not done again that was done once. why: what the jail says of it."""
    return f"step {record.number} would have to put in {_spoken(record)} again, and {why}"


def _spoken(record: StepRecord) -> str:
    return ", ".join(f"`{name}`" for name in record.names)
