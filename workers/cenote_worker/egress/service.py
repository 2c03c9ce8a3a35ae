"""The proxy of a client process: one thread with an event loop, for the connections of all its jails."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

from cenote_security.certificates import Certificate
from cenote_worker.egress.ledger import Ledger
from cenote_worker.egress.patience import PATIENCE, Patience
from cenote_worker.egress.reach import PublicReach, Reach
from cenote_worker.egress.session import Session


class OpenSession:
    """A session that is being served. To be closed, from any thread, when its jail has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, session: Session) -> None:
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        loop.call_soon_threadsafe(self._start, session)

    def close(self) -> None:
        """Ends all connections of the jail, soon."""
        self._loop.call_soon_threadsafe(self._stop)

    def _start(self, session: Session) -> None:
        self._task = self._loop.create_task(session.serve())

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


class EgressService:
    """Serves sessions on a thread of its own: a client that computes does not stop its jails' connections."""

    def __init__(self, reach: Callable[[], Reach] = PublicReach, patience: Patience = PATIENCE) -> None:
        self._reach = reach
        self._patience = patience
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="cenote-egress", daemon=True).start()

    def open(
        self, listener: socket.socket, ledger: Ledger, authority: Certificate | None = None
    ) -> OpenSession:
        """Serve what connects to `listener`, which belongs to the session from now on. authority: see Session."""
        session = Session(listener, ledger, self._reach(), self._patience, authority)
        return OpenSession(self._loop, session)
