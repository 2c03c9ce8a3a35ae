"""Quotas that outlive the gateway: the limits of tenants, and the holds of objects that continue to exist.

The only place with their SQL. One gateway has the ledger in memory; other processes may set limits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from cenote.gateway.store.database import Database
from cenote.gateway.values.quota import MAX_LIMIT, Amounts, Hold, Quota, QuotaLedger
from cenote_security.errors import UsageError
from cenote_security.ids import TenantId

UNLIMITED: Final[Amounts] = MappingProxyType({})


class QuotaBook:
    """Used from any thread. Changes are on the disk when a call returns."""

    def __init__(self, database: Database, defaults: Amounts = UNLIMITED) -> None:
        """defaults: limits of tenants that have none of their own."""
        self._database = database
        self._defaults = dict(defaults)
        self._lock = threading.Lock()
        self._ledger = QuotaLedger(_kept_holds(database))

    def set_limit(self, tenant: TenantId, quota: Quota, limit: int | None) -> None:
        """None: the default again. Use beyond a lower limit stays. Raises UsageError."""
        if limit is not None and not 0 <= limit <= MAX_LIMIT:
            raise UsageError(f"a limit is a whole number from 0 to 2**62, not {limit!r}")
        with self._database.transaction():
            self._database.execute("DELETE FROM quotas WHERE tenant_id = ? AND quota = ?", tenant, quota)
            if limit is not None:
                sql = "INSERT INTO quotas (tenant_id, quota, bound) VALUES (?, ?, ?)"
                self._database.execute(sql, tenant, quota, limit)

    def limits(self, tenant: TenantId) -> Amounts:
        """The tenant's own limits, else the defaults. A missing quota is unlimited."""
        rows = self._database.rows("SELECT quota, bound FROM quotas WHERE tenant_id = ?", tenant)
        return {**self._defaults, **{Quota(row["quota"]): int(row["bound"]) for row in rows}}

    def used(self, tenant: TenantId) -> Amounts:
        with self._lock:
            return self._ledger.used(tenant)

    def reserve(self, hold: Hold) -> None:
        """Reserves quotas before an object exists.

        Raises QuotaExceededError; UsageError for a key that is in use.
        """
        limits = self.limits(hold.tenant)
        with self._lock:
            self._ledger.reserve(hold, limits)
            try:
                self._write(hold)
            except BaseException:
                self._ledger.release(hold.key)
                raise

    def holds(self, key: str) -> bool:
        """Whether the object holds quotas."""
        with self._lock:
            return self._ledger.hold(key) is not None

    def holders(self, tenant: TenantId, quota: Quota) -> list[Hold]:
        """Holds with some of a quota, the largest first."""
        with self._lock:
            return self._ledger.holders(tenant, quota)

    def hold_again(self, hold: Hold) -> None:
        """For an object that was believed gone and exists: it gets its hold back, whatever the limits are."""
        with self._lock:
            if self._ledger.hold(hold.key) is None:
                self._ledger.reserve(hold, UNLIMITED)
                self._write(hold)

    def settle(self, key: str, amounts: Amounts) -> None:
        """Sets the actual amounts of an object.

        Raises QuotaExceededError when that is more than is free, and then the reservation stands; UsageError for a
        key that is not in use.
        """
        with self._lock:
            hold = self._ledger.hold(key)
            old = self._ledger.settle(key, amounts, self.limits(hold.tenant) if hold else UNLIMITED)
            try:
                self._write(replace(old, amounts=amounts))
            except BaseException:
                self._ledger.settle(key, old.amounts, UNLIMITED)
                raise

    def release(self, key: str) -> None:
        """Call when the object is gone. Releasing twice is fine."""
        with self._lock:
            hold = self._ledger.hold(key)
            if hold is not None and hold.lasting:
                self._database.execute("DELETE FROM holds WHERE hold_key = ?", key)
            self._ledger.release(key)

    def release_all_but(self, things: Callable[[], Collection[str]]) -> None:
        """Releases the holds of objects that are gone: the gateway may have been killed, or the database away,
        between the end of an object and the release.

        things: returns the keys of all existing objects. An object exists before its hold, so this is called after
        the holds are read.
        """
        with self._lock:
            held = [hold.key for hold in self._ledger.lasting()]
        there = things()
        for key in held:
            if key not in there:
                self.release(key)

    def _write(self, hold: Hold) -> None:
        if not hold.lasting:
            return
        with self._database.transaction():
            self._database.execute("DELETE FROM holds WHERE hold_key = ?", hold.key)
            sql = "INSERT INTO holds (hold_key, tenant_id, quota, amount) VALUES (?, ?, ?, ?)"
            for quota, amount in hold.amounts.items():
                self._database.execute(sql, hold.key, hold.tenant, quota, amount)


def _kept_holds(database: Database) -> list[Hold]:
    amounts: dict[tuple[str, TenantId], dict[Quota, int]] = {}
    for row in database.rows("SELECT hold_key, tenant_id, quota, amount FROM holds"):
        amounts.setdefault((row["hold_key"], row["tenant_id"]), {})[Quota(row["quota"])] = int(row["amount"])
    return [
        Hold(key=key, tenant=tenant, amounts=held, lasting=True) for (key, tenant), held in amounts.items()
    ]
