"""Leases on shared values: entries of the keeper beside the values, one each, so that processes agree on nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from cenote_worker.keeper.client import KeeperClient

LEASES: Final = "lease/"


class KeptLeases:
    """name: of a value, `TENANT/REFERENCE`. A lease ends at a time of `clock`."""

    def __init__(self, keeper: KeeperClient, clock: Callable[[], float]) -> None:
        self._keeper = keeper
        self._clock = clock
        self._loose: frozenset[str] = frozenset()

    def extend(self, name: str, holder: str, seconds: float) -> None:
        """A lease never becomes shorter."""
        key = _key(name, holder)
        known = self._keeper.get(key)
        until = max(self._clock() + seconds, float(known.record) if known is not None else 0.0)
        self._keeper.put(key, repr(until).encode())

    def has(self, name: str, holder: str) -> bool:
        return self._keeper.get(_key(name, holder)) is not None

    def drop(self, name: str, holder: str) -> None:
        self._keeper.drop(_key(name, holder))

    def ends(self, name: str) -> Iterator[float]:
        """When those that still count end."""
        for key in self._keeper.keys(_key(name, "")):
            kept = self._keeper.get(key)
            if kept is not None and float(kept.record) > self._clock():
                yield float(kept.record)

    def of(self, holders: str) -> list[tuple[str, str]]:
        """What holders whose names begin so have leases on, and which of them."""
        held = map(_parts, self._keeper.keys(LEASES))
        return [(name, holder) for name, holder in held if holder.startswith(holders)]

    def sweep(self, values: set[str]) -> set[str]:
        """Drops those that are over, and such on none of `values`. The values that are held.

        A value is put behind its first lease, so a lease on nothing goes only when it was that at the last sweep too.
        """
        now, held, loose = self._clock(), set[str](), set[str]()
        for key in self._keeper.keys(LEASES):
            name = _parts(key)[0]
            kept = self._keeper.get(key)
            if kept is None or float(kept.record) <= now or (name not in values and key in self._loose):
                self._keeper.drop(key)
                continue
            held.add(name)
            if name not in values:
                loose.add(key)
        self._loose = frozenset(loose)
        return held


def _key(name: str, holder: str) -> str:
    return f"{LEASES}{name}/{holder}"


def _parts(key: str) -> tuple[str, str]:
    """The name of the value, and the holder, whose own name may have slashes in it."""
    tenant, reference, holder = key.removeprefix(LEASES).split("/", 2)
    return f"{tenant}/{reference}", holder
