"""One jail's way out: accepts what the jail connects, as fast and as often as its policy allows.

Which jail speaks is never asked: its connections come on a socket that lies in its own network namespace, where
nobody else can reach it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

from cenote_security.certificates import Certificate
from cenote_worker.egress.exchange import Exchange
from cenote_worker.egress.ledger import Ledger
from cenote_worker.egress.pace import Pace
from cenote_worker.egress.patience import Patience
from cenote_worker.egress.reach import Reach
from cenote_worker.egress.relay import KERNEL_BUFFER, Stream
from cenote_worker.egress.tls_end import HostContexts

_log = logging.getLogger("cenote.egress")

_BREATH_SECONDS: Final = 0.2
"""When the client has no descriptor left, accepting again at once would only spin."""


class Session:
    """Serves the connections of one jail until it is cancelled. Runs on the event loop of the service."""

    def __init__(
        self,
        listener: socket.socket,
        ledger: Ledger,
        reach: Reach,
        patience: Patience,
        authority: Certificate | None,
    ) -> None:
        """authority: of the jail, whose policy has credentials."""
        self._listener = listener
        self._ledger = ledger
        self._reach = reach
        self._patience = patience
        self._contexts = HostContexts(authority) if authority is not None else None
        self._pace = Pace(ledger.allow.rate)
        self._slots = asyncio.Semaphore(ledger.allow.connections)

    async def serve(self) -> None:
        self._listener.setblocking(False)
        # Accepted ones inherit it.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
        with self._listener:
            async with asyncio.TaskGroup() as group:
                while True:
                    connection = await self._next()
                    group.create_task(self._attend(connection))

    async def _next(self) -> socket.socket:
        """The next connection, once there is room and time for it. What is early waits in the jail's own backlog."""
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
        """One connection. Whatever goes wrong with it stays with it."""
        try:
            near = await Stream.over(connection)
            try:
                await Exchange(near, self._ledger, self._reach, self._patience, self._contexts).serve()
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
