"""What a platform writes to its log."""

from __future__ import annotations

import logging

from cenote.gateway.logs import PrintableFormatter


def test_a_record_cannot_act_on_the_terminal_that_shows_it() -> None:
    """Neither by its arguments nor by the error that it tells of; its lines stay lines."""
    error = ValueError("\x1b]0;title\x07")
    record = logging.LogRecord(
        "n", logging.ERROR, "p", 1, "lost %s", ("\x1b[2J\u202e",), (ValueError, error, None)
    )
    shown = PrintableFormatter("%(levelname)s %(message)s").format(record)
    assert "ERROR lost \\x1b[2J\\u202e\nValueError: \\x1b]0;title\\x07" == shown
