"""A Ray cluster that a platform has joined, and the cleanup after a platform.

When the platform ends, its processes on a joined cluster end, and the cluster continues. The cleanup ends what is
left of a platform whose processes were killed, or are stuck: its clusters, descriptor stores, and their jails.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from shutil import rmtree
from typing import Final, Self

from cenote.gateway.machines.own_cluster_unsafe import forget, kept_cluster
from cenote.gateway.store.state_folder import StateFolder
from cenote_security.auth.secret_files import replace_file
from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.descriptor_store.client import DescriptorStoreClient
from cenote_worker.node.state_log import first_line

REACH_SECONDS: Final = 5.0
"""Seconds for a cluster to accept a connection. Ray itself would look for a missing one for a minute."""


LOOK_EVERY: Final = 5.0
LOST_SECONDS: Final = 5.0
"""Seconds for Ray's client to answer again. Before it fails it retries for half a minute; afterwards it does not."""

log = logging.getLogger("cenote.gateway")


def is_outdated(former: JoinedCluster | None, version: str) -> bool:
    """Whether what a former gateway has left, if anything, has another version."""
    return former is not None and former.version != version


def is_client_address(address: str) -> bool:
    """Whether a cluster is joined through Ray's client server, by a process on no machine of it."""
    return address.startswith("ray://")


def lost_client(
    look: Callable[[], object],
    ending: threading.Event,
    *,
    patience: float = LOST_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Waits until a cluster joined through a client server has been unreachable for some time, or the platform ends.

    Returns whether it was lost. look: any call to the cluster that fails when it does not answer.

    Ray ends a driver on a machine of its cluster when that is lost. It does not end its client, which never recovers
    once its server has forgotten it: all calls fail from then on.
    """
    failing: float | None = None
    while not ending.wait(LOOK_EVERY):
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
    """address: in Ray's form. platform: distinguishes this platform's actors from others there. version: of Cenote,
    which the processes there have; empty for one that did not record it. on_purpose: an orderly end has left the
    runtimes there, for the next gateway.
    """

    address: str
    platform: str
    version: str = ""
    on_purpose: bool = False

    @classmethod
    def kept(cls, state: StateFolder) -> Self | None:
        """The record that a process has written, which may have been killed."""
        try:
            return cls(**json.loads(state.joined.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def keep(self, state: StateFolder) -> None:
        """Raises SecretFileError."""
        replace_file(state.joined, json.dumps(asdict(self)).encode())

    def end(self, state: StateFolder) -> None:
        """Ends the actors that a killed gateway left there. Raises UnavailableError."""
        from cenote_worker.node.ray import cluster

        try:
            _reach(self.address)
            cluster.join(self.address, self.platform)
        except (OSError, ValueError, RuntimeError) as error:
            raise UnavailableError(
                f"the Ray cluster at {self.address}, where this platform had its runtimes, cannot be reached "
                f"({error}); try again or, if it has ended, remove {state.joined}"
            ) from error
        try:
            cluster.dissolve()
        finally:
            cluster.leave()
        forget_joined(state)


def check_address(address: str) -> None:
    """Checks an address from a user, before Ray looks for it. Raises UsageError, UnavailableError."""
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


def forget_joined(state: StateFolder) -> None:
    """Removes the record of a joined cluster, once nothing of the platform is on it."""
    state.joined.unlink(missing_ok=True)


def clean_up(state: StateFolder) -> bool:
    """Ends what is left; the caller holds the platform's lock. Returns whether there was anything that a platform's
    orderly end would not have left.

    Raises UnavailableError when there is something on a cluster that cannot be reached.
    """
    joined, cluster, descriptor_stores = JoinedCluster.kept(state), kept_cluster(state), state.nodes
    if joined is not None:
        joined.end(state)
    if cluster is not None:
        cluster.end()
        forget(state)
    for folder in descriptor_stores:  # after the cluster, which would restart one
        DescriptorStoreClient(folder).shut_down()
        rmtree(folder, ignore_errors=True)
    remains = joined is not None and not joined.on_purpose
    return remains or cluster is not None or bool(descriptor_stores)
