"""What can be wrong with a patch. Nothing ran."""

from __future__ import annotations

from cenote_security.errors import UsageError


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
    """The present state cannot be kept, so that a failure could not be undone."""

    def __str__(self) -> str:
        return (
            "the present state cannot be kept (threads may be running in it), so that a failure in the middle could "
            "not be undone; pass atomic=False to go on without that"
        )
