"""Which of a node's hosts serves which runtime. Decides only: no I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NewType

from cenote_security.errors import UnavailableError

HostId = NewType("HostId", str)


class NoRoomError(UnavailableError):
    """No machine has room for a further runtime now. Nothing ran."""


@dataclass(slots=True)
class Placement:
    """Hosts are processes that serve runtimes: one each, for as long as there are enough of them.

    most: hosts at once. A host costs some sixty megabytes, a runtime on it next to nothing. places: runtimes at once;
    None for any number.
    """

    most: int
    places: int | None = None
    _hosts: dict[HostId, set[str]] = field(default_factory=dict)
    _expected: int = 0
    _coming: set[str] = field(default_factory=set)
    """Runtimes that were admitted, placed or not."""

    def joined(self, host: HostId, runtimes: set[str] | None = None) -> None:
        """A host has come, with the runtimes that it serves already."""
        self._hosts[host] = set(runtimes or ())

    def expect(self) -> None:
        """A host was requested."""
        self._expected += 1

    def came(self) -> None:
        """A requested host has come, or will not come."""
        self._expected -= 1

    def left(self, host: HostId) -> set[str]:
        """A host has died; returns the runtimes that other hosts have to serve."""
        return self._hosts.pop(host, set())

    @property
    def wants_more(self) -> bool:
        """Whether no host is free, or about to come, while more hosts are permitted."""
        free = sum(not runtimes for runtimes in self._hosts.values()) + self._expected
        return not free and len(self._hosts) < self.most

    @property
    def expects(self) -> bool:
        """Whether a host is on its way."""
        return self._expected > 0

    @property
    def hopeless(self) -> bool:
        """Whether there is no host and none is on its way."""
        return not self._hosts and not self._expected

    @property
    def hosts(self) -> int:
        return len(self._hosts)

    @property
    def runtimes(self) -> int:
        return sum(map(len, self._hosts.values()))

    def admit(self, runtime: str) -> None:
        """Reserves a place for a runtime that is about to be made, until `admitted`. Raises NoRoomError."""
        coming = sum(self.host_of(one) is None for one in self._coming)
        if self.places is not None and self.runtimes + coming >= self.places:
            raise NoRoomError(f"this machine has room for {self.places} runtimes, and has them")
        self._coming.add(runtime)

    def admitted(self, runtime: str) -> None:
        """The runtime was made, and counts as placed, or will not be made."""
        self._coming.discard(runtime)

    def close(self) -> bool:
        """Takes no more runtimes from now on, if there is none. Returns whether there is none."""
        if self.runtimes or self._coming:
            return False
        self.places = 0
        return True

    def place(self, runtime: str) -> HostId | None:
        """The host with the fewest runtimes, which has this one from now on. None when there is no host."""
        if not self._hosts:
            return None
        host = min(self._hosts, key=lambda one: len(self._hosts[one]))
        self._hosts[host].add(runtime)
        return host

    def settle(self, runtime: str, host: HostId) -> None:
        """This host has the runtime from now on, if it still exists."""
        if host in self._hosts:
            self._hosts[host].add(runtime)

    def host_of(self, runtime: str) -> HostId | None:
        return next((host for host, runtimes in self._hosts.items() if runtime in runtimes), None)

    def remove(self, runtime: str) -> HostId | None:
        """Returns the host that had it."""
        host = self.host_of(runtime)
        if host is not None:
            self._hosts[host].discard(runtime)
        return host
