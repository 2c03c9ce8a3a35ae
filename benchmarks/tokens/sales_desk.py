"""A small sales database behind SQL, for questions about tables and for cleaning records in bulk."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable

from benchmarks.tokens.conversation import Toolkit

ROW_LIMIT = 200
REGIONS = ("north", "south", "east", "west")
PRODUCTS = ("anchor bolt", "ball valve", "check valve", "drain pipe", "elbow joint", "flange")
PREFIXES = ("+1", "001", "1", "")

INSTRUCTIONS = """\
You are the data analyst of a hardware wholesaler. The data is in a SQLite database that you reach through \
tools. Base every statement on data you queried, give figures with units, and name the period they cover. \
Revenue is units times price, in US dollars. Keep answers short: a sentence or two, a small table if it helps."""


class SalesTools:
    """The tools over one in-memory database."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.row_factory = sqlite3.Row
        _fill(self._database, random.Random(4711))

    def all(self) -> list[Callable[..., object]]:
        return [self.list_tables, self.describe_table, self.query, self.update_phone]

    def list_tables(self) -> list[str]:
        """Names of all tables."""
        rows = self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        return [row["name"] for row in rows]

    def describe_table(self, table: str) -> dict[str, str]:
        """Columns of a table with their types.

        Args:
            table: Name of the table.
        """
        rows = self._database.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
        if not rows:
            raise ValueError(f"no table {table!r}")
        return {row["name"]: row["type"] for row in rows}

    def query(self, sql: str) -> list[dict[str, object]]:
        """Rows of a SELECT statement, at most 200.

        Args:
            sql: One SELECT statement in SQLite's dialect.
        """
        if not sql.lstrip().lower().startswith(("select", "with")):
            raise ValueError("only SELECT statements")
        return [dict(row) for row in self._database.execute(sql).fetchmany(ROW_LIMIT)]

    def update_phone(self, contact_id: int, phone: str) -> str:
        """Store the phone number of a contact.

        Args:
            contact_id: Id of the contact.
            phone: Number in the form +1-555-555-5555.
        """
        self._database.execute("UPDATE contacts SET phone = ? WHERE id = ?", (phone, contact_id))
        return "stored"


def make_sales_desk() -> Toolkit:
    return Toolkit(instructions=INSTRUCTIONS, tools=SalesTools().all())


def _fill(database: sqlite3.Connection, dice: random.Random) -> None:
    database.execute("CREATE TABLE sales (day TEXT, region TEXT, product TEXT, units INTEGER, price REAL)")
    database.execute("CREATE TABLE contacts (id INTEGER PRIMARY KEY, name TEXT, company TEXT, phone TEXT)")
    sales = [_sale(month, dice) for month in range(1, 10) for _ in range(150)]
    database.executemany("INSERT INTO sales VALUES (?, ?, ?, ?, ?)", sales)
    database.executemany(
        "INSERT INTO contacts VALUES (?, ?, ?, ?)", [_contact(i, dice) for i in range(1, 25)]
    )


def _sale(month: int, dice: random.Random) -> tuple[str, str, str, int, float]:
    place = dice.randrange(len(PRODUCTS))
    price = round((4.5 + 3.2 * place) * dice.uniform(0.9, 1.1), 2)
    day = f"2026-{month:02}-{dice.randrange(1, 29):02}"
    return day, dice.choice(REGIONS), PRODUCTS[place], dice.randrange(5, 80), price


def _contact(number: int, dice: random.Random) -> tuple[int, str, str, str]:
    digits = f"{dice.randrange(200, 990)}555{dice.randrange(1000, 9999)}"
    forms = (
        f"+1-{digits[:3]}-{digits[3:6]}-{digits[6:]}",
        f"({digits[:3]}) {digits[3:6]}-{digits[6:]}",
        f"{dice.choice(PREFIXES)} {digits[:3]} {digits[3:6]} {digits[6:]}".strip(),
        digits,
    )
    return number, f"Contact {number}", f"{dice.choice(PRODUCTS).title()} Supply", dice.choice(forms)
