"""Quotas that are counted where they are used, jointly by the processes of a machine. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cenote_security.errors import QuotaExceededError


class SharedQuota(StrEnum):
    """CELLS: accepted and not finished. STORED: bytes of shared values, of values being received from
    clients, and of the stored data of runtimes."""

    CELLS = "cells"
    STORED = "stored"


UNITS: Final[Mapping[SharedQuota, str]] = MappingProxyType({SharedQuota.STORED: "bytes"})

REMEDIES: Final[Mapping[SharedQuota, str]] = MappingProxyType(
    {
        SharedQuota.CELLS: "wait for running cells to end",
        SharedQuota.STORED: "release shared values that are not needed, remove durable runtimes, or send fewer large "
        "values at once",
    }
)

Limits = Mapping[SharedQuota, int]
"""Limits of one tenant on one machine; a missing quota is unlimited."""


def exceeded(quota: SharedQuota, used: int, asked: int, limit: int) -> QuotaExceededError:
    return QuotaExceededError(quota.value, used, asked, limit, UNITS.get(quota, ""), REMEDIES[quota])


def parted(limits: Limits, machines: int) -> Limits:
    """Each machine's share, rounded up: no machine gets zero unless the limit is zero, and together they exceed the
    limit by less than one per machine.
    """
    return {quota: -(-limit // machines) for quota, limit in limits.items()}
