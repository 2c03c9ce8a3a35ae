"""A Ray cluster that a platform has joined: what the platform has there is ended with it, the cluster never."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from typing import Final, Self

from cenote.gateway.state_folder import StateFolder
from cenote_security.errors import UnavailableError, UsageError
from cenote_security.secret_files import replace_file

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
        """Raises SecretFileError."""
        replace_file(state.joined, json.dumps(asdict(self)).encode())

    def end(self, state: StateFolder) -> None:
        """Ends what a killed gateway has left there. Raises UnavailableError."""
        from cenote_worker.cluster import ray_cluster

        try:
            _reach(self.address)
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


def check_address(address: str) -> None:
    """For one that somebody names, before Ray looks for it. Raises UsageError, UnavailableError."""
    if address == "auto":
        return
    try:
        _reach(address)
    except ValueError:
        raise UsageError(
            f"{address!r} is no address of a Ray cluster; write HOST:PORT, or ray://HOST:PORT"
        ) from None
    except OSError as error:
        raise UnavailableError(
            f"no Ray cluster answers at {address} ({error.strerror or error}); `ray status` there tells more"
        ) from error


def _reach(address: str) -> None:
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise ValueError(address)
    socket.create_connection((host, int(port)), REACH_SECONDS).close()


def forget(state: StateFolder) -> None:
    """Nothing of the platform is on a cluster any more."""
    state.joined.unlink(missing_ok=True)
