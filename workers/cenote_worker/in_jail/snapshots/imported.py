"""What imports leave to the garbage collector, done before a copy is made and not behind it.

A library with a hundred thousand objects has Python look through everything there is soon after its import, which
writes to each object. If copies share that memory by then, this costs as much as a sweep over all of it, and the
copies are given up. Once Python has looked, it does so again only when there is a quarter more.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Final

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

MANY: Final = 200
"""Modules. Some 0.1 s after `import torch`, whose 1,500 took 1.7 s."""

_modules = sys.modules
_collect = gc.collect


class Imported:
    """How many modules there were when Python looked through all objects for us."""

    def __init__(self, is_collecting: Callable[[], bool] = gc.isenabled) -> None:
        """is_collecting: whether the user's program has the collector on."""
        self._is_collecting = is_collecting
        self._known = len(_modules)

    def settle(self) -> bool:
        """If many modules have been imported since the last time. Not where a user has turned the collector off."""
        if len(_modules) - self._known < MANY or not self._is_collecting():
            return False
        self._known = len(_modules)
        _collect()
        return True
