"""A log of work that is repeated: one message when it begins to fail, one when it works again.

A traceback every two seconds while a cluster is away would fill a disk.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

_VARYING: Final = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+")
"""Numbers and ids: an error that differs in these alone is the same one."""


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its kind. Texts of Ray and gRPC are pages long."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


class StateLog:
    """The log of one kind of work. what: a sentence for its failure, such as "no certificates could be signed"."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._said = ""

    def attempt(self, work: Callable[[], object], *expected: type[Exception]) -> None:
        """Does the work, and logs how that went. expected: see `failed`. Raises nothing: the next attempt may do
        better.
        """
        try:
            work()
        except Exception as error:  # noqa: BLE001  (whatever Ray raises while its head is away)
            self.failed(error, expected=isinstance(error, expected))
        else:
            self.worked()

    def failed(self, error: BaseException, *, expected: bool) -> None:
        """expected: an error of Cenote, whose text is enough; for others the log has a traceback."""
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
