"""The gateway's errors reach the client with their class, their facts, their text and a status."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from cenote.gateway.errors import AuditUnavailableError, QueueFullError
from cenote.gateway.values.quota import Hold, Quota, QuotaLedger
from cenote_security.errors import (
    CenoteError,
    EntryExistsError,
    NotAuthenticatedError,
    QuotaExceededError,
    ScopeMissingError,
    UnavailableError,
)
from cenote_security.ids import TenantId
from cenote_worker.wire.failures import status_of, to_error, to_failure


def exceeded() -> QuotaExceededError:
    hold = Hold(key="one", tenant=TenantId("acme"), amounts={Quota.MEMORY: 2})
    with pytest.raises(QuotaExceededError) as caught:
        QuotaLedger().reserve(hold, {Quota.MEMORY: 1})
    return caught.value


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotAuthenticatedError("this token has expired"), grpc.StatusCode.UNAUTHENTICATED),
        (ScopeMissingError("teams", ("admin", "references")), grpc.StatusCode.PERMISSION_DENIED),
        (exceeded(), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (EntryExistsError("runtime", "etl"), grpc.StatusCode.ALREADY_EXISTS),
    ],
    ids=["token", "scope", "quota", "taken"],
)
def test_refusals_keep_their_class_and_their_facts(error: CenoteError, status: grpc.StatusCode) -> None:
    """A client can tell a missing scope from an exhausted quota, and read the numbers."""
    received = to_error(to_failure(error))
    assert (type(error), str(error), vars(error)) == (type(received), str(received), vars(received))
    assert status == status_of(error)


@pytest.mark.parametrize(
    ("error", "family"),
    [
        (QueueFullError(1000), UnavailableError),
        (AuditUnavailableError(Path("/audit"), "no space"), UnavailableError),
    ],
    ids=["full", "audit"],
)
def test_errors_without_a_row_keep_their_family_and_their_text(
    error: CenoteError, family: type[CenoteError]
) -> None:
    """The family tells the client what it may do; untyped facts are dropped."""
    received = to_error(to_failure(error))
    assert (family, str(error)) == (type(received), str(received))
