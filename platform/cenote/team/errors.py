"""Errors of teams, typed by what the caller may do."""

from __future__ import annotations

from collections.abc import Sequence

from cenote_security.errors import CenoteError, RejectedError, UsageError
from cenote_security.verdict import limit


class BudgetExceededError(RejectedError):
    """The team's budget does not cover this. The call was not made.

    resource: `tokens`, `cost` (US dollars), `agents`, `depth` or `seconds`.
    needed: the amount requested; 0 where not known. left: the amount that is left.
    """

    verdict = limit("budget")

    def __init__(self, resource: str, needed: float = 0, left: float = 0) -> None:
        super().__init__(resource, needed, left)
        self.resource = resource
        self.needed = needed
        self.left = left

    def __str__(self) -> str:
        reserved = " with room for an answer (`Budget.answer`)" if self.resource in ("tokens", "cost") else ""
        needed = f"{self.needed:.12g} needed{reserved}, " if self.needed else ""
        return (
            f"the team's budget of {self.resource} does not cover this: {needed}{self.left:.12g} left; "
            f"finish with what there is, or give the team a larger budget"
        )


class StepFailedError(CenoteError):
    """A step of a plan did not bring what it was to bring. What its agent did in its runtime stays.

    agent: who did it. reason: what is missing. answer: the agent's last words; empty if there are none. error: why
    its last block failed or was refused, as type and message; empty where it did not.
    """

    def __init__(self, agent: str, reason: str, answer: str = "", error: str = "") -> None:
        super().__init__(agent, reason, answer, error)
        self.agent = agent
        self.reason = reason
        self.answer = answer
        self.error = error

    def __str__(self) -> str:
        words = f"; it said: {self.answer[:300]}" if self.answer else ""
        why = f"; its last block failed: {self.error[:300]}" if self.error else ""
        return f"the step of {self.agent!r} failed: {self.reason}{why}{words}"


class NoSuccessError(CenoteError):
    """Each of several ways failed. errors: one of each, in the order of the ways."""

    def __init__(self, errors: Sequence[BaseException]) -> None:
        super().__init__(tuple(errors))
        self.errors = tuple(errors)

    def __str__(self) -> str:
        reasons = "; ".join(f"{type(error).__name__}: {error}" for error in self.errors)
        return f"none of {len(self.errors)} ways succeeded: {reasons}"


class VariablesFullError(RejectedError):
    """The team's variables hold as much as they may. The variable is as it was.

    what: `bytes` or `names`. limit: how many there may be.
    """

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(what, limit)
        self.what = what
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"the team's variables would hold more than {self.limit} {self.what} together; "
            f"put smaller values, or under names that are there, or give the team a larger variable_memory"
        )


class UnknownTeamNameError(UsageError):
    """The team has nothing of that name. kind: `agent` or `variable`."""

    def __init__(self, kind: str, name: str, known: Sequence[str]) -> None:
        super().__init__(kind, name, tuple(known))
        self.kind = kind
        self.name = name
        self.known = tuple(known)

    def __str__(self) -> str:
        return f"the team has no {self.kind} {self.name!r}; there are {', '.join(self.known) or 'none'}"
