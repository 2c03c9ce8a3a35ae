"""The gateway's interface to SQLite and PostgreSQL: transactions, and statements with values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

Value = str | int | float | None


class DatabaseRow(Protocol):
    """One row of an answer; columns by name."""

    def __getitem__(self, name: str, /) -> Any: ...

    def keys(self) -> Iterable[str]: ...


class DatabaseSession(Protocol):
    """For one thread at a time.

    Statements have a question mark for each value, and use the SQL that SQLite and PostgreSQL share. Each method but
    `close` raises DatabaseUnavailableError, and then nothing of the transaction is done.
    """

    @property
    def place(self) -> str:
        """For people: without a password."""

    @property
    def in_transaction(self) -> bool: ...

    def begin(self) -> None:
        """Others may read meanwhile; writers wait."""

    def begin_snapshot(self) -> None:
        """Begins a transaction that only reads, and sees one moment. Writers do not wait for it."""

    def commit(self) -> None:
        """The changes are on the disk on return, as far as the database guarantees that."""

    def rollback(self) -> None: ...

    def run(self, sql: str, values: Sequence[Value]) -> int:
        """Returns how many rows it changed. Raises DuplicateRowError; then a transaction can only be rolled back."""

    def rows(self, sql: str, values: Sequence[Value]) -> Sequence[DatabaseRow]: ...

    def claim(self) -> None:
        """Claims the database for one gateway, until closed. A second one gets DatabaseUnavailableError."""

    def close(self) -> None:
        """Closing twice is fine."""
