"""Every call at the gateway: who makes it, what becomes of it, and how its failure is told and put on record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

import grpc.aio

from cenote.gateway.answers import public
from cenote.gateway.attendance import Attendance
from cenote.gateway.audit.events import access_decided
from cenote.gateway.errors import AuditUnavailableError
from cenote.gateway.metrics import REQUESTS, count_refusal
from cenote.gateway.principal import Principal
from cenote.gateway.registry import subject_of
from cenote.gateway.stores import Stores
from cenote.tracing import Span, begun, continued
from cenote_security.errors import (
    CenoteError,
    QuotaExceededError,
    RejectedError,
    UnavailableError,
    UnknownRuntimeError,
)
from cenote_worker.serving.doorkeeper import Metadata
from cenote_worker.serving.refusing import refuse
from cenote_worker.serving.rights import bearer_token

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")

_ON_RECORD = (RejectedError, UnknownRuntimeError)
"""What is noted of a caller who is known. Strangers cannot write into the log."""


@contextmanager
def _traced(context: Context, action: str) -> Iterator[Span]:
    """Of a call whose client traces, or of any where this platform does."""
    metadata = context.invocation_metadata() or ()
    with (
        continued({name: text for name, text in metadata if isinstance(text, str)}),
        begun(f"cenote.gateway {action}", {}).whole() as span,
    ):
        yield span


class Callers:
    """On the gateway's loop. pool: where what blocks is done.

    recheck: seconds between two looks at the token of a stream that stays open.
    """

    def __init__(self, stores: Stores, pool: Executor, recheck: float) -> None:
        self._stores = stores
        self._pool = pool
        self._recheck = recheck
        self._attendance = Attendance()
        self._principal: ContextVar[Principal] = ContextVar("principal")
        """Of the call whose task looks."""

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
        """Who has entered, while the call is carried out inside. What goes wrong there ends the call as it should.

        action: what the audit log calls it.
        """
        principal, counts = self._principal.get(), self._stores.counts
        with _traced(context, action) as span:
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
        """Waits until the token of a call is not good any more. Raises NotAuthenticatedError then."""
        while True:
            await asyncio.sleep(self._recheck)
            try:
                await self._authenticated(context.invocation_metadata() or ())
            except UnavailableError:  # nobody can say now; new calls are refused meanwhile
                continue

    async def _authenticated(self, metadata: Metadata) -> Principal:
        token = bearer_token(metadata)
        return await self.on_thread(lambda: self._stores.tokens.authenticate(token))

    async def on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _note(self, principal: Principal, action: str, error: CenoteError) -> None:
        flood = isinstance(error, QuotaExceededError) and error.quota == "streams"
        if flood or not isinstance(error, _ON_RECORD):
            return
        with suppress(AuditUnavailableError):  # nothing was done
            self._stores.recorder.record(access_decided(subject_of(principal), action, refusal=str(error)))
