"""What can go wrong with checkpoints, typed by what the caller can do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cenote_security.errors import CenoteError
from cenote_worker.execution.results import ExecutionResult


class CheckpointError(CenoteError):
    """A checkpoint could not be made or read. A runtime that was to be stored goes on as it is."""


class CheckpointRefusedError(CheckpointError):
    """The runtime could not make a checkpoint of its state: its own code failed, or it was out of memory."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the runtime could not give its state away ({self.reason}); it goes on, nothing was stored"


class StoreFailedError(CheckpointError):
    """The store cannot be read or written: a full disk, no rights, no network.

    place: what was read or written. reason: in the words of the system.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}; what was stored before is as it was"


class StoreBusyError(CheckpointError):
    """Another process, or another runtime of this one, writes checkpoints of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"checkpoints of {self.name!r} have a writer already; close that runtime, or choose another name"
        )


class StoreTakenError(CheckpointError):
    """Another writer has taken over the runtime's checkpoints: this runtime's state is not stored any more."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"another writer has taken the checkpoints of {self.name!r} over; this runtime can store no more"
        )


class CheckpointDamagedError(CheckpointError):
    """Stored data is damaged: bytes are missing or different, or of an unknown format.

    name, number: of the checkpoint. damage: each thing that is damaged, in words. restorable: numbers of checkpoints
    of the same runtime that looked whole, newest first.
    """

    def __init__(self, name: str, number: int, damage: tuple[str, ...], restorable: tuple[int, ...]) -> None:
        super().__init__(name, number, damage, restorable)
        self.name = name
        self.number = number
        self.damage = damage
        self.restorable = restorable

    def __str__(self) -> str:
        others = ", ".join(map(str, self.restorable))
        remedy = f"restore one of {others}" if others else "there is no other checkpoint of it"
        found = "; ".join(self.damage[:5])
        return f"checkpoint {self.number} of {self.name!r} is damaged: {found}; {remedy}"


class NewerCheckpointError(CheckpointError):
    """A newer version of Cenote has made this checkpoint. It was left as it is.

    found, known: formats. restorable: numbers of checkpoints of the same runtime that can be read here, newest first.
    """

    def __init__(self, name: str, number: int, found: int, known: int, restorable: tuple[int, ...]) -> None:
        super().__init__(name, number, found, known, restorable)
        self.name = name
        self.number = number
        self.found = found
        self.known = known
        self.restorable = restorable

    def __str__(self) -> str:
        others = ", ".join(map(str, self.restorable))
        remedy = f", or restore one of {others}" if others else ""
        return (
            f"checkpoint {self.number} of {self.name!r} has format {self.found}, this version of Cenote reads "
            f"{self.known}; use the newer version{remedy}"
        )


class IncompleteRestoreError(CheckpointError):
    """A checkpoint cannot give back everything that the runtime had. Nothing was started.

    missing: each thing that would be missing, with the reason.
    """

    def __init__(self, name: str, number: int, missing: tuple[str, ...]) -> None:
        super().__init__(name, number, missing)
        self.name = name
        self.number = number
        self.missing = missing

    def __str__(self) -> str:
        found = "; ".join(self.missing[:20])
        return (
            f"checkpoint {self.number} of {self.name!r} does not have all of the state: {found}. "
            "Pass partial=True (in commands --partial) to go on without"
        )


class OtherEnvironmentError(CheckpointError):
    """A checkpoint was made with other packages than those of the runtime to be restored. Nothing was started.

    made_in, wanted: digests of environments; empty for the packages of a process.
    """

    def __init__(self, name: str, number: int, made_in: str, wanted: str) -> None:
        super().__init__(name, number, made_in, wanted)
        self.name = name
        self.number = number
        self.made_in = made_in
        self.wanted = wanted

    def __str__(self) -> str:
        made_in, wanted = (
            f"environment {digest[:12]}" if digest else "the packages of the process, without an environment"
            for digest in (self.made_in, self.wanted)
        )
        remedy = f'SandboxPolicy(environment="{self.made_in}")' if self.made_in else "no environment"
        return (
            f"checkpoint {self.number} of {self.name!r} was made in {made_in}, and this runtime has {wanted}; "
            f"restore it with {remedy}"
        )


class IncompleteForkError(CheckpointError):
    """A state can be neither copied nor rebuilt in full. No branches were made.

    missing: each thing that a branch would not have, with the reason.
    """

    def __init__(self, missing: tuple[str, ...]) -> None:
        super().__init__(missing)
        self.missing = missing

    def __str__(self) -> str:
        found = "; ".join(self.missing[:20])
        return (
            f"a branch would not have all of the state: {found}. "
            "Pass partial=True (in commands --partial) to fork without"
        )


class NotDurableError(CheckpointError):
    """A call was carried out, but its effect could not be stored; the effect is lost if the runtime ends now.

    outcome: the result of the call, an ExecutionResult for a cell; None where it has none, or where it was not
    sent along to the client. reason: why it could not be stored.
    """

    def __init__(self, outcome: object, reason: str) -> None:
        super().__init__(outcome, reason)
        self.outcome = outcome
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"it was done and is not durable: {self.reason}; it is lost if the runtime ends now, and stored with the "
            f"next call that can be"
        )


def result_in(outcome: object) -> ExecutionResult | None:
    """The result of a cell that ran, whether or not that could be stored; None for any other outcome."""
    given = outcome.outcome if isinstance(outcome, NotDurableError) else outcome
    return given if isinstance(given, ExecutionResult) else None


@contextmanager
def carried_out(outcome: object) -> Iterator[None]:
    """A context for storing the effect of a call with this outcome. Raises NotDurableError for a failure inside."""
    try:
        yield
    except CenoteError as error:
        raise NotDurableError(outcome, str(error)) from error
