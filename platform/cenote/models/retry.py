"""When to ask a model again. Decides; sleeps, clocks and dice are the caller's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cenote.models.errors import ModelError, ModelUnavailableError
from cenote_security.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with full jitter, and obedience to `Retry-After`.

    attempts: how often a request is sent at most; 1 is never again.
    base: seconds; the wait after attempt n is drawn from 0 to `base * 2 ** (n - 1)`, at most `cap`. From all
        of that range, so that agents that failed together do not return together.
    longest_wait: a server that asks for more than these seconds is not waited for: the caller decides.
    """

    attempts: int = 5
    base: float = 1.0
    cap: float = 30.0
    longest_wait: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.base, self.cap, self.longest_wait) < 0:
            raise UsageError(f"a retry policy needs at least one attempt and no negative times: {self!r}")

    def delay(self, *, attempt: int, error: ModelError, draw: float) -> float | None:
        """Seconds to wait after failed attempt `attempt` (from 1), or None to give up.

        draw: a random number in [0, 1).
        """
        if not isinstance(error, ModelUnavailableError) or attempt >= self.attempts:
            return None
        # 2 ** 30 seconds is beyond any cap; larger exponents would overflow a float.
        backoff = draw * min(self.cap, self.base * 2.0 ** min(attempt - 1, 30))
        if error.retry_after is None:
            return backoff
        if error.retry_after > self.longest_wait:
            return None
        return error.retry_after + min(backoff, self.base)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that a server asks to wait: `retry-after-ms`, or `Retry-After` in seconds or as an HTTP date.

    headers: looked up in lower case. now: seconds since the epoch. None when absent or unreadable.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _seconds(value)
    return _until(value, now) if seconds is None and value else seconds


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _until(date: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime  # slow to import, rarely needed

    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now)
    except (ValueError, OverflowError):
        return None
