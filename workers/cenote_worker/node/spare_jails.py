"""Jails on their way from the zygote's process to the host that requested one, through the descriptor store."""

from __future__ import annotations

import secrets
import time
from typing import Final

from cenote_security.errors import UnavailableError
from cenote_worker.descriptor_store.client import DescriptorStoreClient
from cenote_worker.supervisor.jail_handle import JailEnds

_PLACE: Final = "spare/"


def put_spare(descriptor_store: DescriptorStoreClient, ends: JailEnds) -> str:
    """Puts a jail into the descriptor store, and returns the key by which it is fetched."""
    key = f"{_PLACE}{time.monotonic():.0f}/{secrets.token_hex(8)}"
    try:
        descriptor_store.put(key, ends.record(), ends.descriptors())
    finally:
        ends.close()
    return key


def take_spare(descriptor_store: DescriptorStoreClient, key: str) -> JailEnds:
    """Raises UnavailableError when it was given up meanwhile."""
    kept = descriptor_store.get(key)
    if kept is None:
        raise UnavailableError("the jail that was started for this runtime is gone; try again")
    descriptor_store.drop(key)
    return JailEnds.arrived(kept.record, kept.descriptors)


def sweep_spares(descriptor_store: DescriptorStoreClient, before: float) -> None:
    """Gives up those that were put before a time, on the monotonic clock, and were never fetched."""
    for key in descriptor_store.keys(_PLACE):
        if float(key.split("/")[1]) < before:
            descriptor_store.drop(key)
