"""How many streams and calls each tenant has open at the gateway. Values in, values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cenote_security.errors import QuotaExceededError
from cenote_security.ids import TenantId

MOST: Final = 500
"""Of one tenant; a fraction of what the server takes, so that no tenant can shut the others out."""


class Attendance:
    """Not for use from several threads at once."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._here: Counter[TenantId] = Counter()

    @contextmanager
    def one(self, tenant: TenantId) -> Iterator[None]:
        """One more, while inside. Raises QuotaExceededError."""
        if self._here[tenant] >= self._most:
            raise QuotaExceededError(
                "streams", self._here[tenant], 1, self._most, "", "close runtimes that nobody uses"
            )
        self._here[tenant] += 1
        try:
            yield
        finally:
            self._here[tenant] -= 1
            if not self._here[tenant]:
                del self._here[tenant]
