"""Threads of Python code that libraries have waiting, and end when asked, to begin them again when they are needed.

Nobody who runs a progress bar has asked for a thread. For as long as one is alive no copy of the process can be made,
and a step is not alone, so that nothing of what it does is known for sure.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_alive = threading._active  # type: ignore[attr-defined]
_modules = sys.modules
_putenv, _unsetenv = os.putenv, os.unsetenv
_variables: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
_TOKENIZERS: Final = b"TOKENIZERS_PARALLELISM"
"""What they ask the C library for, each time."""


def end_waiting() -> None:
    """Called by the main thread, between cells. Others than those of such libraries are left alone; never raises."""
    if len(_alive) < 2:
        return
    for thread in list(_alive.values()):
        for kind, end in _ENDED_BY.items():
            if kind in (type(thread).__module__, thread.name):
                with suppress(Exception):  # a cell may have changed the library
                    end(thread)


def pause() -> None:
    """Has libraries end threads of their own code which no function of C is known for; never raises."""
    cv2: Any = _modules.get("cv2")
    with suppress(Exception):
        if cv2 is not None and (count := cv2.getNumThreads()) > 1:
            cv2.setNumThreads(1)  # ends them at once
            cv2.setNumThreads(count)  # begins them when they are needed


def begin_fork() -> None:
    """Tokenizers turn their threads off in a copy, unless the user has asked for some, and say so on stderr."""
    if "tokenizers" in _modules:
        _putenv(_TOKENIZERS, b"false")


def end_fork(*, is_copy: bool) -> None:
    """In the process that was forked. is_copy: it is a copy itself, in which they stay off: it has no threads."""
    if "tokenizers" in _modules and not is_copy:
        if (wanted := _variables.get(_TOKENIZERS)) is None:
            _unsetenv(_TOKENIZERS)
        else:
            _putenv(_TOKENIZERS, wanted)


def _exit(monitor: Any) -> None:
    """Of tqdm, which looks at bars that have not moved for long. The next bar has one again."""
    monitor.exit()


def _clean_up(_loop: threading.Thread) -> None:
    """Of Zarr, with the threads of its event loop. The next call that needs them has them again."""
    _modules["zarr.core.sync"].cleanup_resources()


_ENDED_BY: Final[Mapping[str, Callable[[threading.Thread], None]]] = {
    "tqdm._monitor": _exit,
    "zarr_io": _clean_up,
}
"""By the module that the class of a thread is of, or by its name."""


def unforkable() -> str:
    """Which library ends a copy by itself, if one does.

    Numba's layer over GNU's OpenMP remembers its process, and has another one terminated in its next parallel loop,
    though its threads are paused.
    """
    layer: Any = _modules.get("numba.np.ufunc.omppool")
    parallel: Any = _modules.get("numba.np.ufunc.parallel")
    guarded = getattr(layer, "openmp_vendor", "") == "GNU" and getattr(parallel, "_is_initialized", False)
    return "Numba's threads over OpenMP (NUMBA_THREADING_LAYER=workqueue has others)" if guarded else ""
