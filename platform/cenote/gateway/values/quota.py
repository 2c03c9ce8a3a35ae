"""Tenants' quotas, and the ledger of what is in use. Values in, values out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cenote_security.errors import THOUSANDTHS, QuotaExceededError, UsageError
from cenote_security.ids import TenantId
from cenote_security.options import Options, Size, option
from cenote_security.printable import shown_size
from cenote_worker.tenancy.shared_quota import REMEDIES, UNITS, Limits, SharedQuota

MAX_LIMIT: Final = 2**62
"""The sum of two still fits the database's integers."""


class Quota(StrEnum):
    """A resource that is counted per tenant, in whole units, so that no sum drifts.

    RUNTIMES: created and not removed. MEMORY: bytes reserved by the policies of live runtimes. CPUS: thousandths of a
    CPU, likewise. CELLS and STORED: see SharedQuota; machines count them, this ledger does not. TEAMS: made and not
    deleted. JOBS: submitted and not over. ENVIRONMENTS: bytes of those that were built for the tenant, on each
    machine.
    """

    RUNTIMES = "runtimes"
    MEMORY = "memory"
    CPUS = "cpus"
    CELLS = "cells"
    STORED = "stored"
    TEAMS = "teams"
    JOBS = "jobs"
    ENVIRONMENTS = "environments"


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits(Options):
    """What a tenant may have at once: an option for each quota. None is no limit."""

    runtimes: int | None = option(
        None, help="runtimes that were made and not removed", at_least=0, at_most=MAX_LIMIT, none="no limit"
    )
    memory: Size | None = option(
        None,
        help="memory that the policies of live runtimes promise",
        unit="bytes",
        at_most=MAX_LIMIT,
        none="no limit",
    )
    cpus: float | None = option(
        None,
        help="CPUs that the policies of live runtimes promise",
        at_least=0,
        at_most=MAX_LIMIT // 1000,
        none="no limit",
    )
    cells: int | None = option(
        None, help="cells that were sent and have not ended", at_least=0, at_most=MAX_LIMIT, none="no limit"
    )
    stored: Size | None = option(
        None, help="shared values and states of runtimes", unit="bytes", at_most=MAX_LIMIT, none="no limit"
    )
    teams: int | None = option(
        None, help="teams that were made and not deleted", at_least=0, at_most=MAX_LIMIT, none="no limit"
    )
    jobs: int | None = option(
        None, help="jobs that were submitted and are not over", at_least=0, at_most=MAX_LIMIT, none="no limit"
    )
    environments: Size | None = option(
        None,
        help="environments that were built for the tenant, on the disk of each machine",
        unit="bytes",
        at_most=MAX_LIMIT,
        none="no limit",
    )

    def __post_init__(self) -> None:
        self.checked().raise_all()

    def amounts(self) -> Amounts:
        """The limits in the quotas' own units; unlimited quotas are left out."""
        found = {Quota(name): value for name, value in self.changes().items()}
        return {
            quota: round(value * 1000) if _UNITS.get(quota) == THOUSANDTHS else value
            for quota, value in found.items()
        }


_UNITS: Final = {
    Quota.MEMORY: "bytes",
    Quota.CPUS: THOUSANDTHS,
    Quota.ENVIRONMENTS: "bytes",
    Quota.STORED: UNITS[SharedQuota.STORED],
}

_REMEDIES: Final = {
    Quota.RUNTIMES: "remove runtimes that are not needed",
    Quota.MEMORY: "close runtimes, or give them less memory in their policies",
    Quota.CPUS: "close runtimes, or give them fewer CPUs in their policies",
    Quota.TEAMS: "delete teams that are not needed",
    Quota.JOBS: "wait until some are over, or cancel some",
    Quota.ENVIRONMENTS: "remove environments that are not needed",
    Quota.CELLS: REMEDIES[SharedQuota.CELLS],
    Quota.STORED: REMEDIES[SharedQuota.STORED],
}

Amounts = Mapping[Quota, int]
"""Amounts by quota; a missing one is 0, or in limits, unlimited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The amounts that one object takes of its tenant's quotas while it exists.

    key: identifies the object, such as a runtime's id. lasting: it outlives the gateway, as runtimes do and cells do
    not.
    """

    key: str
    tenant: TenantId
    amounts: Amounts
    lasting: bool = False

    def __post_init__(self) -> None:
        if any(amount < 0 for amount in self.amounts.values()):
            raise UsageError("nothing takes less than nothing of a quota")
        object.__setattr__(self, "amounts", MappingProxyType(dict(self.amounts)))


class QuotaLedger:
    """All holds of all tenants. A refused request changes nothing.

    Limits are passed with each request: a limit below what is in use removes no hold, and refuses new ones.
    """

    def __init__(self, holds: Iterable[Hold] = ()) -> None:
        """holds: those that outlived the last ledger; they are not checked."""
        self._holds: dict[str, Hold] = {}
        self._used: defaultdict[TenantId, Counter[Quota]] = defaultdict(Counter)
        for hold in holds:
            self._put(hold)

    def reserve(self, hold: Hold, limits: Amounts) -> None:
        """Call before the object exists. Raises QuotaExceededError; UsageError for a key that is in use."""
        if hold.key in self._holds:
            raise UsageError(f"{hold.key!r} holds its part of the quotas already")
        self._check(hold, {}, limits)
        self._put(hold)

    def settle(self, key: str, amounts: Amounts, limits: Amounts) -> Hold:
        """Replaces a reservation once the amounts are known. Returns the hold that it replaced.

        Amounts beyond the reservation are checked like new ones. Raises QuotaExceededError, and then the reservation
        stands; UsageError for a key that is not in use.
        """
        old = self._holds.get(key)
        if old is None:
            raise UsageError(f"{key!r} holds nothing of any quota")
        new = replace(old, amounts=amounts)
        self._check(new, old.amounts, limits)
        self.release(key)
        self._put(new)
        return old

    def hold(self, key: str) -> Hold | None:
        return self._holds.get(key)

    def holders(self, tenant: TenantId, quota: Quota) -> list[Hold]:
        """Holds with some of a quota, the largest first."""
        found = [hold for hold in self._holds.values() if hold.tenant == tenant and hold.amounts.get(quota)]
        return sorted(found, key=lambda hold: -hold.amounts[quota])

    def lasting(self) -> list[Hold]:
        """Holds of objects that outlive the gateway."""
        return [hold for hold in self._holds.values() if hold.lasting]

    def release(self, key: str) -> None:
        """Call when the object is gone. Releasing twice is fine: several failure paths release."""
        hold = self._holds.pop(key, None)
        if hold is not None:
            self._used[hold.tenant].subtract(hold.amounts)

    def used(self, tenant: TenantId) -> Amounts:
        """The tenant's use of all quotas."""
        return {quota: self._used[tenant][quota] for quota in Quota}

    def _check(self, hold: Hold, before: Amounts, limits: Amounts) -> None:
        used = self.used(hold.tenant)
        for quota, amount in hold.amounts.items():
            more = amount - before.get(quota, 0)
            limit = limits.get(quota)
            if limit is not None and more > 0 and used[quota] + more > limit:
                raise _exceeded(quota, used[quota], more, limit)

    def _put(self, hold: Hold) -> None:
        self._holds[hold.key] = hold
        self._used[hold.tenant].update(hold.amounts)


def _exceeded(quota: Quota, used: int, asked: int, limit: int) -> QuotaExceededError:
    return QuotaExceededError(quota.value, used, asked, limit, _UNITS.get(quota, ""), _REMEDIES[quota])


def unit_of(quota: Quota) -> str:
    return _UNITS.get(quota, "")


def shown(quota: Quota, amount: int) -> str:
    """An amount as text."""
    unit = _UNITS.get(quota, "")
    if unit == "bytes":
        return shown_size(amount)
    return f"{amount / 1000:g} CPUs" if unit == THOUSANDTHS else str(amount)


def shared(limits: Amounts) -> Limits:
    """The limits that machines enforce."""
    return {quota: limits[Quota(quota)] for quota in SharedQuota if Quota(quota) in limits}
