"""What the operator's commands did, on its way into the audit log, whose one writer is the gateway.

The only place with their SQL.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from cenote.gateway.audit.entry import Event
from cenote.gateway.audit.recorder import Recorder
from cenote.gateway.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class _Notice:
    number: int
    event: Event


class Notices:
    """Left by any process; taken by the gateway, in their order."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def leave(self, event: Event) -> None:
        """It is on the disk when this returns, and on record when a gateway runs."""
        with self._database.transaction():
            row = self._database.row("SELECT COALESCE(MAX(number), 0) + 1 AS next FROM notices")
            assert row is not None
            sql = "INSERT INTO notices (number, event) VALUES (?, ?)"
            self._database.execute(sql, row["next"], json.dumps(asdict(event)))

    def hand_over(self, recorder: Recorder) -> None:
        """Puts on record what was left. A crash in between puts it there twice, never not at all.

        Raises AuditUnavailableError; what was not recorded stays.
        """
        for notice in self._left():
            recorder.record(notice.event).result()
            self._database.execute("DELETE FROM notices WHERE number = ?", notice.number)

    def _left(self) -> list[_Notice]:
        rows = self._database.rows("SELECT number, event FROM notices ORDER BY number")
        return [_Notice(number=row["number"], event=Event(**json.loads(row["event"]))) for row in rows]
