"""How failures leave the gateway: as what they are, without what is nobody's business outside."""

from __future__ import annotations

import logging
from typing import Final

import grpc

from cenote.gateway.errors import (
    AuditBrokenError,
    AuditUnavailableError,
    DatabaseUnavailableError,
    NewerSchemaError,
)
from cenote_proto.v1.failure_pb2 import Failure
from cenote_security.errors import (
    CenoteError,
    HistoryTakenError,
    HistoryUnavailableError,
    SecretFileError,
    UnavailableError,
)
from cenote_worker.wire.failures import METADATA, to_error

log = logging.getLogger("cenote.gateway")

_OWN: Final = (
    AuditBrokenError,
    AuditUnavailableError,
    DatabaseUnavailableError,
    NewerSchemaError,
    SecretFileError,
    HistoryUnavailableError,
    HistoryTakenError,
)
"""Their texts name files of the gateway's machine."""


def public(error: Exception) -> CenoteError:
    """What may be told of an error to whoever asked. The rest goes into the gateway's own log."""
    if isinstance(error, grpc.aio.AioRpcError):
        return from_node(error)
    if isinstance(error, _OWN):
        log.error("%s", error)
        return UnavailableError("the platform cannot keep its records now; its operator finds why in its log")
    if isinstance(error, CenoteError):
        return error
    log.error("a request failed", exc_info=error)
    return UnavailableError("the platform failed at this; its operator finds why in its log")


def from_node(error: grpc.aio.AioRpcError) -> CenoteError:
    """What a call to a node ended with: its own words, or that it cannot be reached, without saying where it is."""
    for key, value in error.trailing_metadata() or ():
        if key == METADATA and isinstance(value, bytes):
            return to_error(Failure.FromString(value))
    log.warning("a node answered %s: %s", error.code(), error.details())
    return UnavailableError("the machine that has it does not answer the platform now; try again")
