"""What an agent writes to the log `cenote.agent`. Nothing is printed unless the program sets up logging."""

from __future__ import annotations

import logging
from enum import IntEnum

from cenote.agent.events import Event, EventType, StoppedEvent
from cenote.agent.response import StopReason
from cenote_security.printable import printable

_logger = logging.getLogger("cenote.agent")
_logger.addHandler(logging.NullHandler())


class LogLevel(IntEnum):
    """How much is logged: what failed; also how each task ends; also every block with its output."""

    ERROR = 0
    INFO = 1
    DEBUG = 2


_LEVELS = {LogLevel.ERROR: logging.ERROR, LogLevel.INFO: logging.INFO, LogLevel.DEBUG: logging.DEBUG}
_IMPORTANCE = {
    EventType.EXECUTION_ERROR: LogLevel.ERROR,
    EventType.SECURITY_ERROR: LogLevel.ERROR,
    EventType.MAX_STEPS_REACHED: LogLevel.ERROR,
    EventType.FINAL_RESPONSE: LogLevel.INFO,
    EventType.COMPACTED: LogLevel.INFO,
}
_SAID_BEFORE = (StopReason.COMPLETED, StopReason.MAX_STEPS)
"""Ends of which an event before has told."""


def log_event(event: Event, level: LogLevel) -> None:
    """Up to a level; pieces of text never."""
    if event.type is EventType.TEXT or event.type.is_passing:
        return
    importance = _IMPORTANCE.get(event.type, LogLevel.DEBUG)
    if isinstance(event, StoppedEvent) and event.stop_reason not in _SAID_BEFORE:
        importance = LogLevel.ERROR
    if importance <= level:
        _logger.log(_LEVELS[importance], "%s: %s", event.type.value, printable(event.content, lines=True))
