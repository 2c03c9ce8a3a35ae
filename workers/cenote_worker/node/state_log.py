"""What is said in a log of work that is done again and again: once when it begins to fail, once when it works again.

A look every two seconds at a cluster that is away would fill a disk with one traceback.
"""

from __future__ import annotations

import logging
import re
from typing import Final

_VARYING: Final = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+")
"""Numbers and ids: an error that differs in these alone is the same one."""


def first_line(error: BaseException) -> str:
    """What an error says, or its kind. Ray and gRPC go on for pages."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


class StateLog:
    """Of one kind of work. what: of it as a sentence when it fails, such as "no certificates could be signed"."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._said = ""

    def failed(self, error: BaseException, *, expected: bool) -> None:
        """expected: an error of ours, whose text says all; of others the log has a traceback."""
        state = _VARYING.sub("#", f"{type(error).__qualname__}: {error}")
        if state == self._said:
            return
        self._said = state
        self._log.log(
            logging.WARNING if expected else logging.ERROR,
            "%s: %s; this is said once, until it changes",
            self._what,
            first_line(error),
            exc_info=None if expected else error,
        )

    def worked(self) -> None:
        if self._said:
            self._said = ""
            self._log.warning("%s: that is over", self._what)
