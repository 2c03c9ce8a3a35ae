"""What is counted where it is used up, by the processes of a machine together. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cenote_security.errors import QuotaExceededError


class SharedQuota(StrEnum):
    """CELLS: accepted and not finished. STORED: bytes of shared values, of values on their way from
    clients, and of what is stored of runtimes."""

    CELLS = "cells"
    STORED = "stored"


UNITS: Final[Mapping[SharedQuota, str]] = MappingProxyType({SharedQuota.STORED: "bytes"})

REMEDIES: Final[Mapping[SharedQuota, str]] = MappingProxyType(
    {
        SharedQuota.CELLS: "wait for running cells to end",
        SharedQuota.STORED: "release shared values that nobody needs, remove durable runtimes, or send fewer large "
        "values at once",
    }
)

Limits = Mapping[SharedQuota, int]
"""Of one tenant on one machine; what is missing is not limited."""


def exceeded(quota: SharedQuota, used: int, asked: int, limit: int) -> QuotaExceededError:
    return QuotaExceededError(quota.value, used, asked, limit, UNITS.get(quota, ""), REMEDIES[quota])


def parted(limits: Limits, machines: int) -> Limits:
    """Each machine's part, rounded up: where anything is allowed no machine is left with nothing, and all together
    never have as much as one more than the limit for each machine.
    """
    return {quota: -(-limit // machines) for quota, limit in limits.items()}
