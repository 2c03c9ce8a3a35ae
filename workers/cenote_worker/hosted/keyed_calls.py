"""The requests of one runtime that came with a key: each is carried out once, however often it is sent."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from cenote_security.errors import OutcomeUnknownError, UnavailableError
from cenote_worker.checkpoints.errors import result_in
from cenote_worker.hosted.keyed_call import KeyedCall, RequestKey, nothing_ran
from cenote_worker.journal.story import MAX_KEYS, MAX_OUTCOMES
from cenote_worker.supervisor.requests import Listener, Outcome, Withdraw
from cenote_worker.transcript import Transcript


def _nothing(_key: str, _outcome: Outcome) -> None:
    pass


CarryOut = Callable[[Listener], Withdraw | None]
"""Sends a request, and gives what takes it back, if anything does."""


class KeyedCalls:
    """Safe to use from several threads. limit: characters of output kept of one call; a quarter of all."""

    def __init__(self, runtime: str, limit: int, noted: Callable[[str, Outcome], None] = _nothing) -> None:
        """runtime: what errors call it. noted: called with each outcome before anybody hears of it."""
        self._runtime = runtime
        self._limit = limit
        self._noted = noted
        self._lock = threading.Lock()
        self._running: dict[str, KeyedCall] = {}
        self._settled: OrderedDict[str, tuple[KeyedCall, int]] = OrderedDict()
        self._size = 0
        self._forgotten: OrderedDict[str, int] = OrderedDict()

    def once(
        self,
        key: RequestKey | None,
        listener: Listener,
        carry_out: CarryOut,
        spare: Callable[[], None] | None = None,
    ) -> Withdraw | None:
        """Carries a request out unless it has been, and lets the listener hear of it. What it gives takes it back.

        spare: lets go of what the request owns when it is not carried out. Raises OutcomeUnknownError, see `claim`.
        """
        if key is None:
            return carry_out(listener)
        try:
            call, fresh = self.claim(key.text)
            call.join(listener, key)
            if fresh:
                spare = None
                _begin(call, listener, carry_out)
        finally:
            if spare is not None:
                spare()
        return call.withdraw

    def leave(self, key: str, listener: Listener) -> None:
        """The listener hears no more of a call, which goes on."""
        with self._lock:
            call = self._running.get(key)
        if call is not None:
            call.leave(listener)

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

    def _add(self, key: str) -> KeyedCall:
        call = self._running[key] = KeyedCall(key, self._limit, self._settle)
        return call

    def restore(self, key: str, outcome: Outcome | None, printed: Transcript) -> KeyedCall:
        """A call that another process has begun. outcome: None while it runs. printed: so far; taken over."""
        with self._lock:
            call = self._add(key)
            call.transcript = printed
        if outcome is not None:
            call.outcome = outcome
            self._remember(call, outcome)
        return call

    def restore_key(self, key: str, step: int) -> None:
        """A call that is known to have had an outcome, which nobody has any more."""
        with self._lock:
            self._forgotten[key] = step

    def _settle(self, call: KeyedCall, outcome: Outcome) -> None:
        self._noted(call.key, outcome)
        self._remember(call, outcome)

    def _remember(self, call: KeyedCall, outcome: Outcome) -> None:
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
        self._forgotten[key] = result.step if (result := result_in(call.outcome)) is not None else 0
        if len(self._forgotten) > MAX_KEYS:
            self._forgotten.popitem(last=False)


def _begin(call: KeyedCall, listener: Listener, carry_out: CarryOut) -> None:
    try:
        call.begun(carry_out(call))
    except Exception as error:
        call.leave(listener)  # its caller gets the error itself
        call.done(UnavailableError(f"the request could not be carried out: {error}"))
        raise


def _size(outcome: Outcome) -> int:
    """Roughly, in bytes: what can be large."""
    if (result := result_in(outcome)) is None:
        return 0
    shown = sum(len(part) for bundle in result.outputs for part in bundle.values())
    texts = [result.stdout, result.stderr, result.value or "", result.reply or ""]
    texts += [result.error.message, result.error.traceback] if result.error is not None else []
    return shown + sum(map(len, texts)) + (result.trace.size if result.trace is not None else 0)


def _too_old(step: int) -> str:
    return (
        f"it ran as step {step}, and its result is no longer kept"
        if step
        else "its outcome is no longer kept"
    )
