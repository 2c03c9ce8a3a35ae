"""Prepares a fresh jail before the values of a checkpoint are restored: sets the process, and runs steps again.

State of the process that programs see and no variable leads to (environment, directory, import path, random numbers)
is saved in a checkpoint and restored. What no checkpoint can store is made again: steps are run, and some of the
names that they bind are kept. Before the steps the part of the checkpoint that they read is restored; after them
everything else is, over their results.
"""

from __future__ import annotations

import importlib
import os
import random
import stat
import sys
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cenote_proto.scalars import make
from cenote_proto.v1 import checkpoint_pb2, jail_pb2
from cenote_worker.execution.results import ErrorInfo
from cenote_worker.execution.trace import Location, StepTrace, key_of
from cenote_worker.jail.kernel import Kernel
from cenote_worker.jail.libraries.matplotlib_figures import present_backend
from cenote_worker.jail.process import proc_info
from cenote_worker.jail.state import ambient_transfer
from cenote_worker.jail.state.pickles_unsafe import NotKept, load_settings
from cenote_worker.jail.state.variable_groups import NOT_STATE
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_STANDARD = frozenset(sys.stdlib_module_names)
_OURS = frozenset({"cenote_worker", "cenote_security", "cenote_proto", "google", "cloudpickle", "xxhash"})


def take_process(futures: int) -> dict[str, object]:
    """Called in the process itself, not in a forked copy: Python draws new random numbers in each copy.

    futures: compiler flags that hold for later cells.
    """
    numpy = sys.modules.get("numpy.random")
    return {
        "random": random.getstate(),
        "numpy.random": numpy.get_state() if numpy is not None else None,
        **ambient_transfer.take_states(["torch.random"]),
        "environ": dict(os.environ),
        "cwd": _directory(),
        "sys.path": list(sys.path),
        "warnings": list(warnings.filters),
        "futures": futures,
    }


def put_process(state: dict[str, Any]) -> None:
    """Called where code runs, before anything is imported or rebuilt."""
    os.environ.clear()
    os.environ.update(state["environ"])
    if (backend := state["environ"].get("MPLBACKEND")) is not None:
        os.environ["MPLBACKEND"] = str(present_backend(backend))
    sys.path[:] = state["sys.path"]
    warnings.filters[:] = state["warnings"]  # type: ignore[index]
    with suppress(OSError):  # it was outside the working directory, or had been deleted
        os.chdir(state["cwd"])


def resume_random_numbers(state: dict[str, Any]) -> None:
    """Restores random number generators; called last, since rebuilding values may draw numbers."""
    random.setstate(state["random"])
    if state["numpy.random"] is not None:
        import numpy.random

        numpy.random.set_state(state["numpy.random"])
    if state.get("torch.random") is not None:  # an older checkpoint has none
        ambient_transfer.put_states({"torch.random": state["torch.random"]})


def modules_in_use(imported: Iterable[str]) -> list[checkpoint_pb2.ModuleInUse]:
    """Top-level modules that cells have imported, without the interpreter's and our own."""
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


class StepRebuilder:
    """The rebuilder of one restore."""

    def __init__(self, kernel: Kernel, workdir: Path, stubs: Mapping[str, object]) -> None:
        """Made before anything is restored."""
        self._kernel = kernel
        self._namespace = kernel.namespace
        self._workdir = workdir
        self._stubs = stubs
        self._began = take_process(kernel.futures)
        self._injected = dict(kernel.namespace)
        self._open: set[bytes] = set()
        """Paths of files that are open now: these are overwritten in place."""
        self.made: dict[str, object] = {}

    def begin(
        self, request: checkpoint_pb2.RebuildBegin, restored: Mapping[str, object], process: Mapping[str, Any]
    ) -> None:
        """Puts the namespace and the process into the state before the first step."""
        self._empty()
        self._namespace.update((name, self._injected[name]) for name in request.injected)
        self._namespace.update((name, restored[name]) for name in request.names)
        states = {**self._began, **{key: process[key] for key in request.states if key in process}}
        put_process(states)
        if not Path(states["cwd"]).samefile("."):
            raise NotKept("the folder is not there that was the current one")
        self._load(request.modules)
        settings = load_settings(process) if process else {}
        given = {state: settings[state] for state in request.states if state in settings}
        self._kernel.in_context(lambda: ambient_transfer.put_settings(given))

    def repeat(self, step: checkpoint_pb2.RepeatedStep) -> None:
        """Raises NotKept when its effects visibly differ from those of the first run."""
        self._check(step.found, step, "finds")
        code = step.code.decode("utf-8", "surrogatepass")
        outcome = self._kernel.run_cell(code, step.step)
        if (outcome.error.type if outcome.error is not None else "") != step.error:
            raise NotKept(f"step {step.step} {_ended(outcome.error)} this time")
        self._compare(outcome.trace, step)

    def end(self, request: checkpoint_pb2.RebuildEnd) -> None:
        """Keeps these names, and removes everything else that the steps have made."""
        missing = [name for name in request.names if name not in self._namespace]
        if missing:
            raise NotKept(f"{', '.join(missing)}: the steps do not make it any more")
        self.made = {name: self._namespace[name] for name in request.names}
        self._empty()
        self._namespace.update(self._injected)
        os.chdir(self._workdir)
        self._open = self._clear()

    def check_files(self, files: Iterable[bytes]) -> None:
        """Called after everything else has been restored. files: the paths that should exist. Raises NotKept."""
        moved = self._open - set(files)
        if moved:
            path = os.fsdecode(min(moved))
            raise NotKept(f"the file {path} was moved or deleted after it had been opened")

    # -- names and files --

    def _empty(self) -> None:
        for name in [name for name in self._namespace if name not in NOT_STATE]:
            del self._namespace[name]
        self._namespace.update(self._stubs)

    def _load(self, modules: Iterable[str]) -> None:
        for module in modules:
            with suppress(Exception):  # a module of the working directory, which was written later
                importlib.import_module(module)

    def _clear(self) -> set[bytes]:
        """Removes all files except open ones, which it returns."""
        inodes = proc_info.open_files()
        kept = set[bytes]()
        for folder, folders, files in os.walk(self._workdir, topdown=False):
            for each in files:
                path = Path(folder, each)
                status = path.lstat()
                if (status.st_dev, status.st_ino) in inodes:
                    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
                    kept.add(os.fsencode(path.relative_to(self._workdir)))
                else:
                    path.unlink()
            for each in folders:
                path = Path(folder, each)
                with suppress(OSError):  # an open file is in it
                    path.unlink() if path.is_symlink() else path.rmdir()
        return kept

    # -- whether it is what it was --

    def _check(self, seen: Iterable[jail_pb2.Seen], step: checkpoint_pb2.RepeatedStep, verb: str) -> None:
        expected = {Location(each.location): each.version for each in seen}
        tracker = self._kernel.tracker
        if expected and tracker is not None:
            _compare(expected, tracker.versions(expected), f"step {step.step} {verb}")

    def _compare(self, trace: StepTrace | None, step: checkpoint_pb2.RepeatedStep) -> None:
        if trace is not None:
            expected = {Location(each.location): each.version for each in step.left}
            _compare(expected, trace.writes, f"step {step.step} leaves")


def _compare(expected: Mapping[Location, str], found: Mapping[Location, str], what: str) -> None:
    """Compares two sets of versions. After a `+` a version names the sharing with the rest of the namespace.

    If several differ, as for a list and its iterator, the same one is always named.
    """
    for location, version in sorted(expected.items()):
        other = found.get(location, version)
        if other[:1] != "?" and version.partition("+")[0] != other.partition("+")[0]:
            raise NotKept(f"{what} another {key_of(location)} than the first time")


def _ended(error: ErrorInfo | None) -> str:
    return f"ends with {error.type}: {error.message[:200]}" if error is not None else "does not fail"
