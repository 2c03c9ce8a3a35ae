"""A table that maps each error to its kind of failure on the wire and its gRPC status."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import grpc

from cenote_proto.scalars import make
from cenote_proto.v1.failure_pb2 import Failure
from cenote_security import errors
from cenote_worker.checkpoints import errors as checkpoints

METADATA = "cenote-failure-bin"
"""The metadata key with the Failure of a failed unary call."""

MAX_FACTS = 10_000
"""Characters of all facts together: they become part of an error's text."""


@dataclass(frozen=True, slots=True)
class Row:
    """facts: the number of arguments that the error's class takes."""

    kind: Failure.Kind.ValueType
    error: type[errors.CenoteError]
    status: grpc.StatusCode
    facts: int = 1


# The most specific classes first: an error takes the first row that it is an instance of.
TABLE: tuple[Row, ...] = (
    Row(Failure.NAME_EXISTS, errors.NameExistsError, grpc.StatusCode.ALREADY_EXISTS),
    Row(Failure.UNKNOWN_NAME, errors.UnknownNameError, grpc.StatusCode.NOT_FOUND, 2),
    Row(Failure.NOT_TRANSFERABLE, errors.NotTransferableError, grpc.StatusCode.INVALID_ARGUMENT, 2),
    Row(Failure.UNKNOWN_FILE, errors.UnknownFileError, grpc.StatusCode.NOT_FOUND),
    Row(Failure.FILE_EXISTS, errors.FileTakenError, grpc.StatusCode.ALREADY_EXISTS),
    Row(Failure.FILE_REFUSED, errors.FileRefusedError, grpc.StatusCode.FAILED_PRECONDITION, 2),
    Row(Failure.NO_SUCH_RUNTIME, errors.UnknownRuntimeError, grpc.StatusCode.NOT_FOUND),
    Row(Failure.NO_SUCH_REFERENCE, errors.UnknownReferenceError, grpc.StatusCode.NOT_FOUND),
    Row(Failure.NO_SUCH_ENTRY, errors.UnknownEntryError, grpc.StatusCode.NOT_FOUND, 2),
    Row(Failure.ENTRY_EXISTS, errors.EntryExistsError, grpc.StatusCode.ALREADY_EXISTS, 2),
    Row(Failure.CLOSED, errors.RuntimeClosedError, grpc.StatusCode.FAILED_PRECONDITION),
    Row(Failure.NOT_KEPT, errors.NotKeptError, grpc.StatusCode.NOT_FOUND),
    Row(Failure.USAGE, errors.UsageError, grpc.StatusCode.INVALID_ARGUMENT),
    Row(Failure.UNAUTHENTICATED, errors.NotAuthenticatedError, grpc.StatusCode.UNAUTHENTICATED),
    Row(Failure.FORBIDDEN, errors.ScopeMissingError, grpc.StatusCode.PERMISSION_DENIED, 2),
    Row(Failure.QUOTA_EXCEEDED, errors.QuotaExceededError, grpc.StatusCode.RESOURCE_EXHAUSTED, 6),
    Row(Failure.EXPIRED, errors.RuntimeExpiredError, grpc.StatusCode.FAILED_PRECONDITION),
    Row(Failure.UNSAFE_VALUE, errors.UnsafeValueError, grpc.StatusCode.FAILED_PRECONDITION, 2),
    Row(Failure.MALFORMED_VALUE, errors.MalformedValueError, grpc.StatusCode.FAILED_PRECONDITION),
    Row(Failure.REJECTED, errors.RejectedError, grpc.StatusCode.FAILED_PRECONDITION),
    Row(Failure.ISOLATION_UNAVAILABLE, errors.IsolationUnavailableError, grpc.StatusCode.UNAVAILABLE, 3),
    Row(Failure.JAIL_START, errors.JailStartError, grpc.StatusCode.UNAVAILABLE, 3),
    Row(Failure.UNAVAILABLE, errors.UnavailableError, grpc.StatusCode.UNAVAILABLE),
    Row(Failure.OUTCOME_UNKNOWN, errors.OutcomeUnknownError, grpc.StatusCode.UNKNOWN, 3),
    Row(Failure.JAIL_LOST, errors.JailLostError, grpc.StatusCode.ABORTED),
    Row(Failure.ROLLED_BACK, errors.RolledBackError, grpc.StatusCode.ABORTED, 2),
    Row(Failure.CALL_TIMEOUT, errors.CallTimeoutError, grpc.StatusCode.DEADLINE_EXCEEDED),
    Row(Failure.PROTOCOL, errors.ProtocolViolation, grpc.StatusCode.ABORTED),
    Row(Failure.JAIL, errors.JailError, grpc.StatusCode.ABORTED),
    Row(Failure.CHECKPOINT_REFUSED, checkpoints.CheckpointRefusedError, grpc.StatusCode.FAILED_PRECONDITION),
    Row(Failure.STORE_FAILED, checkpoints.StoreFailedError, grpc.StatusCode.UNAVAILABLE, 2),
    Row(Failure.STORE_BUSY, checkpoints.StoreBusyError, grpc.StatusCode.UNAVAILABLE),
    Row(Failure.STORE_TAKEN, checkpoints.StoreTakenError, grpc.StatusCode.ABORTED),
    Row(Failure.CHECKPOINT_DAMAGED, checkpoints.CheckpointDamagedError, grpc.StatusCode.DATA_LOSS, 4),
    Row(
        Failure.INCOMPLETE_RESTORE, checkpoints.IncompleteRestoreError, grpc.StatusCode.FAILED_PRECONDITION, 3
    ),
    Row(Failure.INCOMPLETE_FORK, checkpoints.IncompleteForkError, grpc.StatusCode.FAILED_PRECONDITION),
    Row(Failure.NOT_DURABLE, checkpoints.NotDurableError, grpc.StatusCode.DATA_LOSS, 2),
    Row(Failure.UNANSWERED_CALL, errors.UnansweredCallError, grpc.StatusCode.FAILED_PRECONDITION),
    Row(Failure.REHEARSAL, errors.RehearsalError, grpc.StatusCode.FAILED_PRECONDITION),
    Row(Failure.CHECKPOINT, checkpoints.CheckpointError, grpc.StatusCode.FAILED_PRECONDITION),
)
_BY_KIND = {row.kind: row for row in TABLE}


def to_failure(error: errors.CenoteError) -> Failure:
    """The error as data. An error whose class has no row is sent as its family, with its text."""
    row = _row(error)
    if row is None:
        return make(Failure, message=str(error))
    known = error.args[: row.facts] if type(error) is row.error else (str(error),)
    return make(Failure, kind=row.kind, message=str(error), facts=[json.dumps(fact) for fact in known])


def to_error(failure: Failure) -> errors.CenoteError:
    """The error of a failure. One of a kind unknown to this version keeps its text."""
    row = _BY_KIND.get(failure.kind)
    if row is None or len(failure.facts) != row.facts:
        return errors.CenoteError(failure.message)
    try:
        error = row.error(*_facts(failure.facts))
        str(error)
    except (ValueError, TypeError, RecursionError):  # not the arguments of this version's error
        return errors.CenoteError(failure.message)
    return error


def status_of(error: errors.CenoteError) -> grpc.StatusCode:
    row = _row(error)
    return grpc.StatusCode.INTERNAL if row is None else row.status


def _row(error: errors.CenoteError) -> Row | None:
    return next((row for row in TABLE if isinstance(error, row.error)), None)


def _facts(texts: Iterable[str]) -> list[object]:
    texts = list(texts)
    if sum(map(len, texts)) > MAX_FACTS:
        raise ValueError("too many facts")
    return [_tupled(json.loads(text)) for text in texts]


def _tupled(fact: object) -> object:
    return tuple(map(_tupled, fact)) if isinstance(fact, list) else fact
