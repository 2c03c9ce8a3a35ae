"""Calls at the gateway: who makes them, how many a tenant may have open, how failures are reported.

An error keeps its type when it leaves the gateway, without the names of the gateway's own files and machines.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any, Final, NoReturn, TypeVar

import grpc
import grpc.aio

from cenote.gateway.api.metrics import REQUESTS, count_refusal
from cenote.gateway.api.runtime_registry import subject_of
from cenote.gateway.audit.events import access_decided
from cenote.gateway.errors import (
    AuditBrokenError,
    AuditUnavailableError,
    DatabaseUnavailableError,
    NewerSchemaError,
)
from cenote.gateway.store.stores import Stores
from cenote.gateway.values.principal import Principal
from cenote.tracing import TraceSpan, begun, continued
from cenote_proto.v1.failure_pb2 import Failure
from cenote_security.errors import (
    CenoteError,
    HistoryTakenError,
    HistoryUnavailableError,
    QuotaExceededError,
    RejectedError,
    SecretFileError,
    UnavailableError,
    UnknownRuntimeError,
)
from cenote_security.ids import TenantId
from cenote_worker.process.log_context import log_context
from cenote_worker.serving.auth_interceptor import Metadata, refuse
from cenote_worker.serving.rights import bearer_token
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
"""Errors whose texts name files of the gateway's machine."""


def public(error: Exception) -> CenoteError:
    """The error as the caller may see it. Details go to the gateway's own log."""
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
    """The node's own error, or one that says that the node cannot be reached, without its address."""
    for key, value in error.trailing_metadata() or ():
        if key == METADATA and isinstance(value, bytes):
            return to_error(Failure.FromString(value))
    log.warning("a node answered %s: %s", error.code(), error.details())
    return UnavailableError("the machine that has it does not answer the platform now; try again")


MAX_CALLS_OF_TENANT: Final = 500
"""Open calls of one tenant; a fraction of the server's limit, so that no tenant can shut the others out."""


class ConnectionLimit:
    """Counts the open calls of each tenant. Not thread-safe."""

    def __init__(self, most: int = MAX_CALLS_OF_TENANT) -> None:
        self._most = most
        self._here: Counter[TenantId] = Counter()

    @contextmanager
    def one(self, tenant: TenantId) -> Iterator[None]:
        """Counts one call while inside. Raises QuotaExceededError."""
        if self._here[tenant] >= self._most:
            raise QuotaExceededError(
                "streams", self._here[tenant], 1, self._most, "", "close runtimes that are not used"
            )
        self._here[tenant] += 1
        try:
            yield
        finally:
            self._here[tenant] -= 1
            if not self._here[tenant]:
                del self._here[tenant]


Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")

_ON_RECORD = (RejectedError, UnknownRuntimeError)
"""Refusals that are recorded for an authenticated caller. Unauthenticated callers cannot write into the log."""


@contextmanager
def _traced(context: Context, action: str) -> Iterator[TraceSpan]:
    """A span for a call whose client traces, or for any call where this platform does."""
    metadata = context.invocation_metadata() or ()
    with (
        continued({name: text for name, text in metadata if isinstance(text, str)}),
        begun(f"cenote.gateway {action}", {}).whole() as span,
    ):
        yield span


class GatewayCalls:
    """Lives on the gateway's loop. pool: runs blocking calls.

    recheck: seconds between two checks of the token of an open stream.
    """

    def __init__(self, stores: Stores, pool: Executor, recheck: float) -> None:
        self._stores = stores
        self._pool = pool
        self._recheck = recheck
        self._attendance = ConnectionLimit()
        self._principal: ContextVar[Principal] = ContextVar("principal")
        """The caller of the current task."""

    async def enter(self, metadata: Metadata) -> None:
        """See Enter."""
        try:
            self._principal.set(await self._authenticated(metadata))
        except Exception as error:
            told = public(error)
            count_refusal(self._stores.counts, told)
            raise told from error

    @asynccontextmanager
    async def served(self, context: Context, action: str) -> AsyncIterator[Principal]:
        """Authenticates the caller and yields its Principal; the call is carried out inside. An error there ends the
        call with the matching status.

        action: the name of the call in the audit log.
        """
        principal, counts = self._principal.get(), self._stores.counts
        with log_context(tenant=principal.tenant), _traced(context, action) as span:
            try:
                with self._attendance.one(principal.tenant):
                    yield principal
                counts.add(REQUESTS, "ok")
            except asyncio.CancelledError:
                counts.add(REQUESTS, "cancelled")
                raise
            except Exception as error:  # noqa: BLE001  (gRPC would send the text of an unexpected one)
                told = public(error)
                span.end(type(told).__name__)
                count_refusal(counts, told)
                self._note(principal, action, told)
                await refuse(context, told)

    async def barred(self, context: Context) -> NoReturn:
        """Waits until the token of a call is no longer good. Then raises NotAuthenticatedError."""
        while True:
            await asyncio.sleep(self._recheck)
            try:
                await self._authenticated(context.invocation_metadata() or ())
            except UnavailableError:  # the token cannot be checked now; new calls are refused meanwhile
                continue

    async def _authenticated(self, metadata: Metadata) -> Principal:
        token = bearer_token(metadata)
        return await self.on_thread(lambda: self._stores.tokens.authenticate(token))

    async def on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, work)

    def _note(self, principal: Principal, action: str, error: CenoteError) -> None:
        flood = isinstance(error, QuotaExceededError) and error.quota == "streams"
        if flood or not isinstance(error, _ON_RECORD):
            return
        with suppress(AuditUnavailableError):  # the call has done nothing
            self._stores.recorder.record(access_decided(subject_of(principal), action, refusal=str(error)))
