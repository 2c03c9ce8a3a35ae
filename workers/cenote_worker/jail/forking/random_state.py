"""Random numbers after a fork: the same ones again for a state that is gone back to, others for a branch.

What a copy has by itself: `random` draws anew, by a handler of Python's, where Python's fork is used; numpy and
PyTorch go on as the original does, and so would give each branch the same numbers. `secrets`, `uuid4` and
`os.urandom` ask the kernel each time. OpenSSL mixes the process in and never repeats itself. Generators that a cell
has made, such as `numpy.random.default_rng(7)`, are values of the namespace: a branch has its copy, where they were.
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
"""What `random.getstate` gives: opaque, for `random.setstate`."""

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
    """What a fork changes. To be called right before."""
    return _getstate()


def put_back(state: PythonState) -> None:
    """In a copy: draw the numbers that the original would have drawn."""
    _setstate(state)


def stir() -> None:
    """In a process that has become an image, as others may have: nothing that is to be secret may repeat.

    OpenSSL mixes the number of the process in, which is the same in each of them.
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
