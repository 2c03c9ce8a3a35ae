"""How the processes of a platform write their logs: one format, without control characters for terminals."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from cenote.tracing import current_trace
from cenote_security.printable import printable


class PrintableFormatter(logging.Formatter):
    """Escapes each record and its traceback: they contain tenants' names and the texts of other programs."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), lines=True)


class JsonFormatter(logging.Formatter):
    """One object on one line for each record: `time`, `level`, `logger`, `event`, and if present `error` (a
    traceback), `trace` (the id of the trace that it belongs to) and `runtime` (an id, from the record's `extra`).
    """

    def format(self, record: logging.LogRecord) -> str:
        error = self.formatException(record.exc_info) if record.exc_info else ""
        facts = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "event": printable(record.getMessage(), lines=True),
            "error": printable(error, lines=True),
            "trace": current_trace(),
            "runtime": getattr(record, "runtime", ""),
        }
        return json.dumps({name: text for name, text in facts.items() if text})


def set_up(level: int, *, as_json: bool = False) -> None:
    """Configures logging of the whole process."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonFormatter() if as_json else PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(handlers=[handler], level=level)
