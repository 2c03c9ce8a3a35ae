"""Errors of the gateway's own storage; the errors for its callers are in `cenote_security.errors`."""

from __future__ import annotations

from pathlib import Path

from cenote_security.errors import RejectedError, UnavailableError


class DatabaseUnavailableError(UnavailableError):
    """The gateway's database cannot be read or written now. The requested change was not made.

    place: a path, or a URL without its password. remedy: what may help, besides another try.
    """

    def __init__(self, place: str, reason: str, remedy: str = "") -> None:
        super().__init__(place, reason, remedy)
        self.place = place
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"the database {self.place!r} cannot be used: {self.reason}{remedy}"


def missing_folder(what: str) -> str:
    """The text for a folder that is gone. what: its content, as users call it."""
    return f"the folder of {what} is gone; put it back, or mount what has it"


class StoreAwayError(UnavailableError):
    """The folder in which a platform stores states is gone, or another one has its place. Nothing is stored there.

    gone: whether there is none.
    """

    def __init__(self, *, gone: bool) -> None:
        super().__init__(gone)
        self.gone = gone

    def __str__(self) -> str:
        what = "the store of durable runtimes"
        if self.gone:
            return missing_folder(what)
        return (
            f"another folder is in the place of {what}; put the former one back, or mount what has it (a platform "
            "that is started again takes this one)"
        )


class DuplicateRowError(RejectedError):
    """A row violates a unique constraint: the caller knows what that means."""


class NewerSchemaError(UnavailableError):
    """A newer version of Cenote has used this database. It was left as it is."""

    def __init__(self, place: str, found: int, known: int) -> None:
        super().__init__(place, found, known)
        self.place = place
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return (
            f"the database {self.place!r} has schema {self.found}, this version of Cenote knows {self.known}; "
            f"use the newer version, or another database"
        )


class NodeLeftError(UnavailableError):
    """A machine has left, and its contents with it, unless they were stored elsewhere."""

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.node = node

    def __str__(self) -> str:
        return f"node {self.node} has left the cluster, and what it had with it"


class QueueFullError(UnavailableError):
    """A tenant has as many requests waiting for their turn as may wait. Nothing ran; try again later."""

    def __init__(self, waiting: int) -> None:
        super().__init__(waiting)
        self.waiting = waiting

    def __str__(self) -> str:
        return f"{self.waiting} requests of this tenant wait for their turn already; try again when some are done"


class AuditUnavailableError(UnavailableError):
    """The audit log cannot be written, so an action that must be recorded must not be done."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(folder, reason)
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return f"the audit log in {str(self.folder)!r} cannot be written: {self.reason}"


class AuditBrokenError(RejectedError):
    """The audit log was changed by something other than its writer. It is not written any further."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(folder, reason)
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the audit log in {str(self.folder)!r} is not as it was written: {self.reason}; keep the folder as "
            f"evidence and start a new one"
        )


class CertificateError(RejectedError):
    """A certificate or its key cannot be used. what: which one, such as a path. reason: and the next step."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"
