"""What the gateway needs of SQLite, and of PostgreSQL: transactions, and statements with values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Value = str | int | float | None


class DatabaseRow(Protocol):
    """One row of an answer; columns by name."""

    def __getitem__(self, name: str, /) -> Any: ...


class DatabaseSession(Protocol):
    """One thread at a time.

    Statements have a question mark for each value, and are those that SQLite and PostgreSQL share. Each method but
    `close` raises DatabaseUnavailableError; what was begun is not done then.
    """

    @property
    def place(self) -> str:
        """For people: without a password."""

    @property
    def in_transaction(self) -> bool: ...

    def begin(self) -> None:
        """Others may read meanwhile, and not write: they wait."""

    def commit(self) -> None:
        """It is on the disk, as far as the database promises that, when this returns."""

    def rollback(self) -> None: ...

    def run(self, sql: str, values: Sequence[Value]) -> int:
        """How many rows it changed. Raises DuplicateRowError, behind which a transaction can only be rolled back."""

    def rows(self, sql: str, values: Sequence[Value]) -> Sequence[DatabaseRow]: ...

    def claim(self) -> None:
        """For the one gateway that works with it, until it is closed. A second one gets DatabaseUnavailableError."""

    def close(self) -> None:
        """Closing twice is fine."""
