"""The interpreter's builtins as they were before any cell ran.

A cell may assign to `builtins.len`, `builtins.repr` and so on, and such a change lasts, as in ordinary Python.
A function finds its builtins through the `__builtins__` of the module it was defined in, so a module that sets
`__builtins__ = BUILTINS` above its functions keeps working on the real ones.
"""

from __future__ import annotations

import builtins
from types import ModuleType

__all__ = ["BUILTINS"]

BUILTINS = ModuleType("builtins")
vars(BUILTINS).update(vars(builtins))
