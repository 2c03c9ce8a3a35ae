"""Random numbers after a fork: the same ones again for a restored state, others for a branch.

The default in a copy: `random` draws anew, through a handler of Python's fork; numpy and PyTorch continue as in the
original, which would give each branch the same numbers. `secrets`, `uuid4` and `os.urandom` ask the kernel each time.
OpenSSL mixes the process in and never repeats itself. Generators that a cell has made, such as
`numpy.random.default_rng(7)`, are values of the namespace: a branch has its own copy, at the same position.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from typing import Any, Protocol, cast

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

PythonState = tuple[Any, ...]
"""The result of `random.getstate`: opaque, for `random.setstate`."""

_getstate, _setstate, _seed = random.getstate, random.setstate, random.seed
_modules = sys.modules
_urandom = os.urandom


class _Seedable(Protocol):
    """seed: sets the generator that the module's own functions draw from, numpy's legacy one or PyTorch's."""

    seed: Callable[[int], object]
    manual_seed: Callable[[int], object]


class _Stirred(Protocol):
    RAND_add: Callable[[bytes, float], None]


def remember() -> PythonState:
    """The state that a fork changes. Call it right before the fork."""
    return _getstate()


def put_back(state: PythonState) -> None:
    """In a copy: draw the numbers that the original would have drawn."""
    _setstate(state)


def stir() -> None:
    """In a process made from an image, as others may be: prevents that secret numbers repeat.

    OpenSSL mixes the process id in, which is the same in each of them.
    """
    if (ssl := _modules.get("_ssl")) is not None:
        cast(_Stirred, ssl).RAND_add(_urandom(48), 48.0)


def draw_anew() -> None:
    """In a copy: draw other numbers than the original and all other copies. Generators in variables stay."""
    _seed()
    if (numpy := _modules.get("numpy.random")) is not None:
        cast(_Seedable, numpy).seed(_fresh(4))
    if (torch := _modules.get("torch")) is not None:
        cast(_Seedable, torch).manual_seed(_fresh(8))


def _fresh(size: int) -> int:
    return int.from_bytes(_urandom(size))
