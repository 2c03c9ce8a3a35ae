"""A Ray cluster that a platform has joined: what the platform has there is ended with it, the cluster never."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, Self

from cenote.gateway.state_folder import StateFolder
from cenote_security.errors import UnavailableError, UsageError
from cenote_security.secret_files import replace_file
from cenote_worker.cluster.state_log import first_line

REACH_SECONDS: Final = 5.0
"""For a cluster to take a connection. Ray itself would look for one that is gone for a minute."""


LOOK_EVERY: Final = 5.0
LOST_SECONDS: Final = 5.0
"""For Ray's client to answer again. Before it fails it has tried for half a minute by itself; then it does not."""

log = logging.getLogger("cenote.gateway")


def is_client_address(address: str) -> bool:
    """Whether a cluster is joined by way of Ray's client server, by who is no machine of it."""
    return address.startswith("ray://")


def lost_client(
    look: Callable[[], object],
    ending: threading.Event,
    *,
    every: float = LOOK_EVERY,
    patience: float = LOST_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Waits until what is joined by way of a client server cannot be reached for so long, or the platform ends.

    Gives whether it was lost. look: asks the cluster for anything, and fails when it does not answer.

    A driver that is a machine of its cluster is ended by Ray where that is lost. Ray's client is not, and never comes
    back once its server has forgotten it: all that is asked fails from then on.
    """
    failing: float | None = None
    while not ending.wait(every):
        try:
            look()
            failing = None
        except Exception as error:  # noqa: BLE001  (of many kinds, as the line breaks)
            failing = clock() if failing is None else failing
            if clock() - failing >= patience and not ending.is_set():
                log.error(
                    "the line to the Ray cluster is lost, and the platform joins it anew: %s",
                    first_line(error),
                )
                return True
    return False


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
