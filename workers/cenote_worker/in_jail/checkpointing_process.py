"""State of the process that programs see and no variable leads to: taken for a checkpoint, put back by a restore."""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cenote_proto.scalars import make
from cenote_proto.v1 import checkpoint_pb2
from cenote_worker.in_jail.carrying import hidden_states
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_STANDARD = frozenset(sys.stdlib_module_names)
_OURS = frozenset({"cenote_worker", "cenote_security", "cenote_proto", "google", "cloudpickle", "xxhash"})


def taken(futures: int) -> dict[str, object]:
    """In the process itself, not in a forked copy: Python draws new random numbers in each of those.

    futures: compiler flags that hold for later cells.
    """
    numpy = sys.modules.get("numpy.random")
    return {
        "random": random.getstate(),
        "numpy.random": numpy.get_state() if numpy is not None else None,
        **hidden_states.take(["torch.random"]),
        "environ": dict(os.environ),
        "cwd": _directory(),
        "sys.path": list(sys.path),
        "warnings": list(warnings.filters),
        "futures": futures,
    }


def put_back(state: dict[str, Any]) -> None:
    """Where code runs: before anything is imported or rebuilt."""
    os.environ.clear()
    os.environ.update(state["environ"])
    sys.path[:] = state["sys.path"]
    warnings.filters[:] = state["warnings"]  # type: ignore[index]
    with suppress(OSError):  # it was outside the working directory, or had been deleted
        os.chdir(state["cwd"])


def draw_on(state: dict[str, Any]) -> None:
    """Random numbers go on where they were; last, since rebuilding values may draw some."""
    random.setstate(state["random"])
    if state["numpy.random"] is not None:
        import numpy.random

        numpy.random.set_state(state["numpy.random"])
    if state.get("torch.random") is not None:  # an older checkpoint has none
        hidden_states.put({"torch.random": state["torch.random"]})


def modules_in_use(imported: Iterable[str]) -> list[checkpoint_pb2.ModuleInUse]:
    """Top-level modules of those that cells have imported, the interpreter's and our own left out."""
    found = []
    for name in sorted(imported):
        if "." in name or name.startswith("_") or name in _STANDARD or name in _OURS:
            continue
        version = getattr(sys.modules[name], "__version__", "")
        found.append(
            make(checkpoint_pb2.ModuleInUse, name=name, version=version if type(version) is str else "")
        )
    return found


def _directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""
