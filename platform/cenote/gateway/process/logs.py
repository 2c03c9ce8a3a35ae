"""How the processes of a platform write their logs: one format, without control characters and without secrets."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Final

from cenote.tracing import current_trace
from cenote_security.auth.capability import CAPABILITY_PATTERN
from cenote_security.auth.tokens import TOKEN_PATTERN
from cenote_security.printable import printable
from cenote_worker.process.log_context import FIELDS, logged_about

_SECRET: Final = re.compile(
    rf"{TOKEN_PATTERN}"
    rf"|{CAPABILITY_PATTERN}"
    r"|(?<=://)[^/@\s]*(?=@)"  # a user and a password in a URL
    r"|(?<=[Bb]earer )[^\s\"']+"
    r"|\bsk-[\w-]{16,}"  # keys of several model providers
    r"|(?<=[?&]sig=)[^\s&\"']+"  # signed URLs of object stores
)


def without_secrets(text: str) -> str:
    """Tokens, capabilities, keys and credentials in URLs become `***`: errors of libraries quote what they got."""
    return _SECRET.sub("***", text)


class PrintableFormatter(logging.Formatter):
    """Escapes each record and its traceback: they contain tenants' names and the texts of other programs."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(without_secrets(super().format(record)), lines=True)


class JsonFormatter(logging.Formatter):
    """One object on one line for each record: `time`, `level`, `logger`, `event`, and if present `error` (a
    traceback), `trace` (the id of the trace that it belongs to), and FIELDS.
    """

    def format(self, record: logging.LogRecord) -> str:
        error = self.formatException(record.exc_info) if record.exc_info else ""
        context = logged_about()
        facts = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "event": printable(without_secrets(record.getMessage()), lines=True),
            "error": printable(without_secrets(error), lines=True),
            "trace": current_trace(),
            **{name: str(getattr(record, name, context.get(name, ""))) for name in FIELDS},
        }
        return json.dumps({name: text for name, text in facts.items() if text})


def set_up(level: int, *, as_json: bool = False) -> None:
    """Configures logging of the whole process."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonFormatter() if as_json else PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(handlers=[handler], level=level)
