"""The requests of one runtime that came with a key: each is carried out once, however often it is sent."""

from __future__ import annotations

import threading
from collections import OrderedDict

from cenote_security.errors import OutcomeUnknownError
from cenote_worker.hosted.keyed_call import KeyedCall, nothing_ran
from cenote_worker.results import ExecutionResult
from cenote_worker.supervisor.requests import Outcome

MAX_OUTCOMES = 256
"""Outcomes kept for clients that come back: they repeat what was under way when their line broke, nothing older."""

MAX_KEYS = 10_000
"""Keys kept behind those, so that a late repetition is refused and not carried out a second time."""


class KeyedCalls:
    """Safe to use from several threads. limit: characters of output kept of one call; a quarter of all."""

    def __init__(self, runtime: str, limit: int) -> None:
        self._runtime = runtime
        self._limit = limit
        self._lock = threading.Lock()
        self._running: dict[str, KeyedCall] = {}
        self._settled: OrderedDict[str, tuple[KeyedCall, int]] = OrderedDict()
        self._size = 0
        self._forgotten: OrderedDict[str, int] = OrderedDict()

    def claim(self, key: str) -> tuple[KeyedCall, bool]:
        """The call of this key, and whether the claimant has to carry it out.

        Raises OutcomeUnknownError when it was carried out so long ago that nothing is kept of it.
        """
        with self._lock:
            known = self._known(key)
            return (known, False) if known is not None else (self._add(key), True)

    def find(self, key: str) -> KeyedCall:
        """The call of this key. Raises OutcomeUnknownError when nothing is known of one."""
        with self._lock:
            known = self._known(key)
        if known is None:
            raise OutcomeUnknownError(self._runtime, key, "nothing of that key has come here, or nothing ran")
        return known

    def _known(self, key: str) -> KeyedCall | None:
        if (running := self._running.get(key)) is not None:
            return running
        if key in self._settled:
            return self._settled[key][0]
        if key in self._forgotten:
            raise OutcomeUnknownError(self._runtime, key, _too_old(self._forgotten[key]))
        return None

    def running(self, key: str) -> KeyedCall | None:
        """The call of this key, if it has no outcome yet."""
        with self._lock:
            return self._running.get(key)

    def drop(self, key: str) -> None:
        """Nothing ran: the key is as good as new."""
        with self._lock:
            self._running.pop(key, None)

    def _add(self, key: str) -> KeyedCall:
        call = self._running[key] = KeyedCall(key, self._limit, self._settle)
        return call

    def _settle(self, call: KeyedCall, outcome: Outcome) -> None:
        with self._lock:
            self._running.pop(call.key, None)
            if nothing_ran(outcome):
                return
            size = call.transcript.size + _size(outcome)
            self._settled[call.key] = call, size
            self._size += size
            while len(self._settled) > 1 and self._over():
                self._forget()

    def _over(self) -> bool:
        return len(self._settled) > MAX_OUTCOMES or self._size > 4 * self._limit

    def _forget(self) -> None:
        key, (call, size) = self._settled.popitem(last=False)
        self._size -= size
        self._forgotten[key] = call.outcome.step if isinstance(call.outcome, ExecutionResult) else 0
        if len(self._forgotten) > MAX_KEYS:
            self._forgotten.popitem(last=False)


def _size(outcome: Outcome) -> int:
    """Roughly, in bytes: what can be large."""
    if not isinstance(outcome, ExecutionResult):
        return 0
    shown = sum(len(part) for bundle in outcome.outputs for part in bundle.values())
    texts = (outcome.stdout, outcome.stderr, outcome.value or "", outcome.reply or "")
    return shown + sum(map(len, texts))


def _too_old(step: int) -> str:
    return (
        f"it ran as step {step}, and its result is no longer kept"
        if step
        else "its outcome is no longer kept"
    )
