"""The proxy of a client process: one thread with an event loop, for the connections of all its jails.

Each jail has a session, which accepts connections as fast and as often as the policy allows. A connection need not
say which jail it comes from: the socket it comes on lies in the jail's own network namespace, out of reach of all
others.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Final

from cenote_security.auth.certificates import Certificate
from cenote_worker.egress.addresses import PublicReach, Reach
from cenote_worker.egress.connection_rate import ConnectionRate
from cenote_worker.egress.exchange import ProxyExchange
from cenote_worker.egress.ledger import EgressLedger
from cenote_worker.egress.relay import KERNEL_BUFFER, PROXY_TIMEOUTS, ProxyTimeouts, Stream
from cenote_worker.egress.tls_termination import HostContexts

_log = logging.getLogger("cenote.egress")

_BREATH_SECONDS: Final = 0.2
"""When the client has no descriptor left, accepting again at once would only spin."""


class ProxySession:
    """Serves the connections of one jail until it is cancelled. Runs on the event loop of the service."""

    def __init__(
        self,
        listener: socket.socket,
        ledger: EgressLedger,
        reach: Reach,
        patience: ProxyTimeouts,
        authority: Certificate | None,
    ) -> None:
        """authority: of the jail, whose policy has credentials."""
        self._listener = listener
        self._ledger = ledger
        self._reach = reach
        self._patience = patience
        self._contexts = HostContexts(authority) if authority is not None else None
        self._pace = ConnectionRate(ledger.allow.rate)
        self._slots = asyncio.Semaphore(ledger.allow.connections)

    async def serve(self) -> None:
        self._listener.setblocking(False)
        # Accepted sockets inherit it.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
        with self._listener:
            async with asyncio.TaskGroup() as group:
                while True:
                    connection = await self._next()
                    group.create_task(self._attend(connection))

    async def _next(self) -> socket.socket:
        """The next connection, as limits permit. Early ones wait in the jail's own backlog."""
        loop = asyncio.get_running_loop()
        await self._slots.acquire()
        while True:
            await asyncio.sleep(self._pace.wait(loop.time()))
            try:
                return (await loop.sock_accept(self._listener))[0]
            except OSError as error:
                _log.warning("no connection of a jail can be accepted: %s", error)
                await asyncio.sleep(_BREATH_SECONDS)

    async def _attend(self, connection: socket.socket) -> None:
        """Serves one connection. Its failures do not affect others."""
        try:
            near = await Stream.over(connection)
            try:
                await ProxyExchange(near, self._ledger, self._reach, self._patience, self._contexts).serve()
                near.writer.close()
                async with asyncio.timeout(self._patience.idle):
                    await near.writer.wait_closed()
            finally:
                near.abort()
        except OSError:
            pass  # one of the two sides broke off, or nothing moved any more
        except Exception:  # noqa: BLE001  (one connection's failure must not end the others)
            _log.exception("a connection of a jail failed")
        finally:
            connection.close()
            self._slots.release()


class OpenProxySession:
    """A session that is being served. Close it, on any thread, when its jail has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, session: ProxySession) -> None:
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        # In the beginner's context: its lines in the log are about that jail's runtime.
        loop.call_soon_threadsafe(self._start, session, context=copy_context())

    def close(self) -> None:
        """Ends all connections of the jail, soon."""
        self._loop.call_soon_threadsafe(self._stop)

    def _start(self, session: ProxySession) -> None:
        self._task = self._loop.create_task(session.serve())

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


class EgressService:
    """Serves sessions on its own thread: a client that computes does not stop its jails' connections."""

    def __init__(
        self, reach: Callable[[], Reach] = PublicReach, patience: ProxyTimeouts = PROXY_TIMEOUTS
    ) -> None:
        self._reach = reach
        self._patience = patience
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="cenote-egress", daemon=True).start()

    def open(
        self, listener: socket.socket, ledger: EgressLedger, authority: Certificate | None = None
    ) -> OpenProxySession:
        """Serves connections to `listener`, which the session takes over. authority: see ProxySession."""
        session = ProxySession(listener, ledger, self._reach(), self._patience, authority)
        return OpenProxySession(self._loop, session)
