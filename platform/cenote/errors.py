"""The errors that calls raise, by what the caller can do about them. Those of one part are with that part as well.

* UsageError: an argument is wrong; nothing ran.
* RejectedError: a policy, a rule, a quota or a missing right refuses it; nothing ran.
* UnavailableError: it cannot be had now; nothing ran, and later it may.
* JailError: the jail of a runtime ended during the request.
* OutcomeUnknownError: the line broke; ask what became of the request before it is repeated.

What a user's own program does wrong is none of these, but a field of the result.
"""

from __future__ import annotations

from cenote_security.errors import (
    CallTimeoutError,
    CenoteError,
    EntryExistsError,
    FileRefusedError,
    FileTakenError,
    HistoryTakenError,
    HistoryUnavailableError,
    IsolationUnavailableError,
    JailError,
    JailLostError,
    JailStartError,
    MalformedValueError,
    NameExistsError,
    NewerHistoryError,
    NotAuthenticatedError,
    NotCopiedError,
    NotKeptError,
    NotTransferableError,
    OutcomeUnknownError,
    QuotaExceededError,
    RejectedError,
    RolledBackError,
    RuntimeClosedError,
    RuntimeExpiredError,
    RuntimeLostError,
    ScopeMissingError,
    SecretFileError,
    UnavailableError,
    UnknownEntryError,
    UnknownFileError,
    UnknownNameError,
    UnknownReferenceError,
    UnknownRuntimeError,
    UnsafeValueError,
    UsageError,
    WeakerRuntimeError,
    WeakerSandboxError,
)

__all__ = [
    "CallTimeoutError",
    "CenoteError",
    "EntryExistsError",
    "FileRefusedError",
    "FileTakenError",
    "HistoryTakenError",
    "HistoryUnavailableError",
    "IsolationUnavailableError",
    "JailError",
    "JailLostError",
    "JailStartError",
    "MalformedValueError",
    "NameExistsError",
    "NewerHistoryError",
    "NotAuthenticatedError",
    "NotCopiedError",
    "NotKeptError",
    "NotTransferableError",
    "OutcomeUnknownError",
    "QuotaExceededError",
    "RejectedError",
    "RolledBackError",
    "RuntimeClosedError",
    "RuntimeExpiredError",
    "RuntimeLostError",
    "ScopeMissingError",
    "SecretFileError",
    "UnavailableError",
    "UnknownEntryError",
    "UnknownFileError",
    "UnknownNameError",
    "UnknownReferenceError",
    "UnknownRuntimeError",
    "UnsafeValueError",
    "UsageError",
    "WeakerRuntimeError",
    "WeakerSandboxError",
]
