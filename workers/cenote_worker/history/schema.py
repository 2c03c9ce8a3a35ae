"""The tables of kept histories. One database may keep those of many runtimes.

An event is kept as the message that it travels as; the other tables are what questions are answered from without
reading every event.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Double, Index, Integer, LargeBinary, MetaData, String, Table

VERSION: Final = 3
"""Of the tables, and of the messages in them. Since 2 there are events of files that clients have written, since 3 of
values that they have put in; what was written before is read as it is."""

METADATA: Final = MetaData()

SCHEMA: Final = Table("history_schema", METADATA, Column("version", Integer, nullable=False))

HISTORIES: Final = Table(
    "histories",
    METADATA,
    Column("runtime", String(200), primary_key=True),
    Column("id", String(64), nullable=False),
    Column("writer", String(64), nullable=False),
)
"""writer: who claimed it last. Whoever claimed it before is refused from then on."""

EVENTS: Final = Table(
    "history_events",
    METADATA,
    Column("runtime", String(200), primary_key=True),
    Column("position", BigInteger, primary_key=True),
    Column("event", LargeBinary, nullable=False),
)

STEPS: Final = Table(
    "history_steps",
    METADATA,
    Column("runtime", String(200), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("parent", BigInteger, nullable=False),
    Column("kind", String(20), nullable=False),
    Column("status", String(20), nullable=False),
    Column("author", String(200), nullable=False),
    Column("started", Double, nullable=False),
    Index("history_steps_by_author", "runtime", "author"),
    Index("history_steps_by_time", "runtime", "started"),
)

LOCATIONS: Final = Table(
    "history_locations",
    METADATA,
    Column("runtime", String(200), primary_key=True),
    Column("location", String(500), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("written", Integer, primary_key=True),
)
"""What each step read (0) and wrote (1). A location is a symbol, a file or hidden state; see cenote_worker.trace."""
