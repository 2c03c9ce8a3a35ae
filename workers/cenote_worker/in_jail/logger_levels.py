"""What loggers remember of which levels they let through, which each cell begins without.

A logger that was asked before goes on letting through what it did when its `level` is set as an attribute, behind the
back of `setLevel`. So a cell would depend on whether any cell before it has logged, which no name says. And a logger
would be another one for each level that it is first used with, though all that it does is the same.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_root = logging.getLogger()
_others: dict[str, Any] = logging.Logger.manager.loggerDict
_dict_of = object.__getattribute__


def forget_levels() -> None:
    """Of all loggers that can be had by a name. Never raises."""
    for logger in (_root, *dict.values(_others)):
        with suppress(AttributeError):  # somebody has put something else there
            remembered = _dict_of(logger, "__dict__").get("_cache")
            if type(remembered) is dict and remembered:
                remembered.clear()
