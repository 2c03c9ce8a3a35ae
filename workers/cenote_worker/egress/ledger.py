"""The decisions and transferred bytes of a runtime's proxy; lives as long as the runtime, across all its jails."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from cenote_security.network import Allow
from cenote_security.printable import printable
from cenote_worker.process.metrics import EGRESS, EGRESS_BYTES, Counts

KEPT: Final = 1000
"""Decisions that are kept in memory. The logger `cenote.egress` gets them all."""

_log = logging.getLogger("cenote.egress")

Kind = Literal["tunnel", "http", "unread"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One request to leave a jail and its outcome.

    at: seconds since the epoch. kind: `unread` when the request was not understood; host is then empty and port 0.
    address: what was dialled, empty if nothing was. reason: why it was refused, empty if it was not.
    """

    at: float
    kind: Kind
    host: str
    port: int
    address: str
    allowed: bool
    reason: str


Witness = Callable[[Decision, int | None], None]
"""Called for each decision when it is made, with None, and again with the transferred bytes when its connection has
ended. Runs on the proxy's thread and must not block.
"""


def _nobody(_decision: Decision, _passed: int | None) -> None:
    pass


class EgressLedger:
    """Written on the proxy's thread, read on any. witness: also called for everything."""

    def __init__(self, allow: Allow, counts: Counts | None = None) -> None:
        self.allow = allow
        self._counts = counts or Counts()
        self._lock = threading.Lock()
        self._decisions: deque[Decision] = deque(maxlen=KEPT)
        self._left = allow.volume_bytes
        self.witness: Witness = _nobody

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The latest decisions, oldest first."""
        with self._lock:
            return tuple(self._decisions)

    @property
    def spent(self) -> bool:
        """Whether the volume is used up."""
        return self._left <= 0

    def spend(self, count: int) -> bool:
        """Takes bytes from the volume. False when the volume is used up."""
        self._left -= count
        return self._left >= 0

    def note(self, kind: Kind, host: str, port: int, *, address: str = "", reason: str = "") -> Decision:
        decision = Decision(
            at=time.time(),
            kind=kind,
            host=printable(host),
            port=port,
            address=address,
            allowed=not reason,
            reason=reason,
        )
        with self._lock:
            self._decisions.append(decision)
        verdict = f"refused: {reason}" if reason else f"allowed, at {address}"
        level = logging.WARNING if reason else logging.INFO
        _log.log(
            level, "%s %s:%d %s", kind, decision.host or "-", port, verdict, extra={"decision": decision}
        )
        self._counts.add(EGRESS, "refused" if reason else "allowed")
        self.witness(decision, None)
        return decision

    def ended(self, decision: Decision, passed: int) -> None:
        """An allowed connection has ended. passed: bytes, both ways."""
        self._counts.add(EGRESS_BYTES, by=passed)
        self.witness(decision, passed)
