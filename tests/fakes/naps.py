"""Waiting that takes no time."""

from __future__ import annotations

from cenote.models.remote import Waits


class Naps:
    """Records pauses instead of waiting; the random number is always one half."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.waits = Waits(sleep=self._sleep, draw=lambda: 0.5)

    async def _sleep(self, seconds: float) -> None:
        self.taken.append(seconds)
