"""Numbers that living jails do not share: each jail has a seat, and its user id by it."""

from __future__ import annotations


class Seats:
    """Seats from 1 to `count - 1`. One that is free again is given as late as may be: what the kernel counts for
    the user of a jail that has ended is let go of a little later than its processes.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._last = 0
        self._taken: dict[int, int] = {}

    def take(self, jail: int) -> int:
        """Raises OSError when none is free."""
        if len(self._taken) >= self._count - 1:
            raise OSError(f"this zygote has {len(self._taken)} jails, and no user id for another")
        taken = set(self._taken.values())
        while True:
            self._last = self._last % (self._count - 1) + 1
            if self._last not in taken:
                self._taken[jail] = self._last
                return self._last

    def leave(self, jail: int) -> None:
        """The jail has ended; of one that has no seat, nothing."""
        self._taken.pop(jail, None)
