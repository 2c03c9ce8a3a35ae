"""How the processes of a platform write their logs: one format, and nothing in it that acts on a terminal."""

from __future__ import annotations

import logging

from cenote_security.printable import printable


class PrintableFormatter(logging.Formatter):
    """Whatever a record says, and its traceback: names of tenants' things and texts of other programs come in."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), lines=True)


def set_up(level: int) -> None:
    """For the whole process."""
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=level)
