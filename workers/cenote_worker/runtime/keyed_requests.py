"""Requests under a key that the client chooses: each is carried out once, however often it is sent.

Every client that sends the key gets the outcome, for as long as it is stored.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from cenote_security.errors import OutcomeUnknownError, UnavailableError, UsageError
from cenote_worker.checkpoints.errors import result_in
from cenote_worker.execution.results import StreamName
from cenote_worker.execution.transcript import CellTranscript
from cenote_worker.record.journal_replay import MAX_KEYS, MAX_OUTCOMES
from cenote_worker.supervisor.requests import Listener, Outcome, Withdraw

MAX_KEY = 200
"""Characters. Randomly generated keys have some thirty."""


def _nothing(_characters: int) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    """Identifies a request when its client sends it again. Raises UsageError for an empty or overlong one.

    text: chosen by the client, unique in its runtime. heard: characters of the request's output that the client has.
    missed: called before any output with the number of characters after those that are not stored any more, if any.
    """

    text: str
    heard: int = 0
    missed: Callable[[int], None] = _nothing

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise UsageError(f"a key is a text, not {self.text!r:.100}")
        if not 0 < len(self.text) <= MAX_KEY:
            raise UsageError(f"a key has 1 to {MAX_KEY} characters, not {len(self.text)}")


class KeyedCall:
    """The Listener of a request, which passes events on to any number of other listeners.

    settled: called with this call and its outcome, before any listener gets it. limit: characters of output stored
    for listeners that join later.
    """

    def __init__(self, key: str, limit: int, settled: Callable[[KeyedCall, Outcome], None]) -> None:
        self.key = key
        self.transcript = CellTranscript(limit)
        self.outcome: Outcome | None = None
        self._settled = settled
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._withdraw: Withdraw | None = None

    def join(self, listener: Listener, key: RequestKey) -> None:
        """The listener gets the output that it has missed at once, then the rest as it comes."""
        with self._lock:
            missing, pieces = self.transcript.after(key.heard)
            if missing:
                key.missed(missing)
            for stream, text in pieces:
                listener.output(stream, text)
            if self.outcome is None:
                self._listeners.append(listener)
            else:
                listener.done(self.outcome)

    def leave(self, listener: Listener) -> None:
        """The listener gets nothing more. The request goes on, with listeners or without."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def begun(self, withdraw: Withdraw | None) -> None:
        """The request is on its way; `withdraw` withdraws it."""
        with self._lock:
            if self.outcome is None:
                self._withdraw = withdraw

    def withdraw(self, *, waiting: bool = True) -> None:
        """Withdraws the request for all listeners: see Withdraw."""
        with self._lock:
            withdraw = self._withdraw if self.outcome is None else None
        if withdraw is not None:
            withdraw(waiting=waiting)

    # -- Listener --

    def output(self, stream: StreamName, text: str) -> bool:
        with self._lock:
            self.transcript.add(stream, text)
            # Every listener gets it, also after one that cannot keep up.
            return all([listener.output(stream, text) for listener in self._listeners])

    def done(self, outcome: Outcome) -> None:
        try:
            self._settled(self, outcome)
        finally:
            with self._lock:
                self.outcome, self._withdraw = outcome, None
                listeners, self._listeners = self._listeners, []
                for listener in listeners:
                    listener.done(outcome)


def key_of(listener: Listener) -> str:
    """Empty for a request without a key."""
    return listener.key if isinstance(listener, KeyedCall) else ""


def nothing_ran(outcome: Outcome) -> bool:
    """Whether the request may still be carried out, when its client sends it again."""
    return isinstance(outcome, UnavailableError)


def _settled_unheard(_key: str, _outcome: Outcome) -> None:
    pass


CarryOut = Callable[[Listener], Withdraw | None]
"""Sends a request, and returns the function that withdraws it, if there is one."""


class KeyedCalls:
    """Safe to use from several threads. limit: characters of output stored of one call; a quarter of all."""

    def __init__(
        self, runtime: str, limit: int, noted: Callable[[str, Outcome], None] = _settled_unheard
    ) -> None:
        """runtime: its name in errors. noted: called with each outcome before any listener gets it."""
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
        """Carries a request out unless that was done, and joins the listener. Returns the function that withdraws it.

        spare: releases what the request owns when it is not carried out. Raises OutcomeUnknownError, see `claim`.
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
        """The listener gets nothing more of a call, which goes on."""
        with self._lock:
            call = self._running.get(key)
        if call is not None:
            call.leave(listener)

    def claim(self, key: str) -> tuple[KeyedCall, bool]:
        """The call of this key, and whether the claimant has to carry it out.

        Raises OutcomeUnknownError when it was carried out so long ago that its outcome is not stored.
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

    def restore(self, key: str, outcome: Outcome | None, printed: CellTranscript) -> KeyedCall:
        """A call that another process has begun. outcome: None while it runs. printed: so far; taken over."""
        with self._lock:
            call = self._add(key)
            call.transcript = printed
        if outcome is not None:
            call.outcome = outcome
            self._remember(call, outcome)
        return call

    def restore_key(self, key: str, step: int) -> None:
        """A call that is known to have had an outcome, which is not stored any more."""
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
    """Approximate size of the large parts, in bytes."""
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
