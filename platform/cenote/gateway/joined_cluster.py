"""A Ray cluster that a platform has joined: what the platform has there is ended with it, the cluster never."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from typing import Final, Self

from cenote.gateway.state_folder import StateFolder
from cenote_security.errors import UnavailableError

REACH_SECONDS: Final = 5.0
"""For a cluster to take a connection. Ray itself would look for one that is gone for a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedCluster:
    """address: as Ray takes it. platform: what tells this platform's actors from others' there."""

    address: str
    platform: str

    @classmethod
    def kept(cls, state: StateFolder) -> Self | None:
        """What was written down, by a process that may have been killed."""
        try:
            return cls(**json.loads(state.joined.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def keep(self, state: StateFolder) -> None:
        state.joined.write_text(json.dumps(asdict(self)))

    def end(self, state: StateFolder) -> None:
        """Ends what a killed gateway has left there. Raises UnavailableError."""
        from cenote_worker.cluster import ray_cluster

        try:
            self._reach()
            ray_cluster.join(self.address, self.platform)
        except (OSError, ValueError, RuntimeError) as error:
            raise UnavailableError(
                f"the Ray cluster at {self.address}, where this platform had its runtimes, cannot be reached "
                f"({error}); try again or, if it has ended, remove {state.joined}"
            ) from error
        try:
            ray_cluster.dissolve()
        finally:
            ray_cluster.leave()
        forget(state)

    def _reach(self) -> None:
        host, _, port = self.address.removeprefix("ray://").rpartition(":")
        socket.create_connection((host, int(port)), REACH_SECONDS).close()


def forget(state: StateFolder) -> None:
    """Nothing of the platform is on a cluster any more."""
    state.joined.unlink(missing_ok=True)
