"""One test suite, loaded: its tests, and what of them has to be run."""

from __future__ import annotations

import asyncio
import fnmatch
import importlib
import importlib.util
import inspect
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from cenote_worker.in_jail.testing.apart import Ended, Plain, apart
from cenote_worker.in_jail.testing.failure import ended, explained
from cenote_worker.in_jail.testing.followed import Follower
from cenote_worker.in_jail.testing.selection import because
from cenote_worker.in_jail.testing.uses import Uses
from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking.tracker import Tracker

__builtins__ = BUILTINS


class Suite:
    """namespace: where tests find their names, each test under its own. imported: what loading the suite used."""

    def __init__(self, namespace: dict[str, object], tests: list[str], uses: Uses, imported: Plain) -> None:
        self.tests = tests
        self._namespace = namespace
        self._uses = uses
        self._imported = imported

    def outcome(self, test: str, former: Mapping[str, object] | None, deadline: float) -> Plain:
        """Of a test, which is run if its former result does not hold any more."""
        reason = because(former, self._uses.version)
        if not reason:
            return {"name": test, "because": ""}
        started = time.monotonic()
        try:
            found = apart(lambda: self._run(test), deadline)
        except Ended as gone:
            unsteady = {"used": {}, "unsteady": "its process ended"}
            found = {"outcome": "error", "error": ended(gone.reason), **unsteady}
        return {"name": test, "because": reason, "seconds": time.monotonic() - started, **found}

    def _run(self, test: str) -> Plain:
        function = self._namespace[test]
        follower = Follower(self._uses.top)
        self._uses.tracker.look_anew()  # in a fork Python draws other random numbers
        watch = self._uses.tracker.begin(compile(f"{test}()", "<test>", "eval"))
        with follower.following():
            error = _failure(function)
        trace = watch.end("" if error is None else type(error).__name__)
        return {**_judged(error), **self._uses.of(trace, follower, self._imported)}


def loaded_file(path: str, top: str) -> Suite | Plain:
    """The tests of a file, with all modules of the working directory as their files are; or why it has none."""
    _forget_modules(top)
    follower, names = Follower(top), dict[str, object]()
    uses = Uses(Tracker(names, top, joining=True), top, by_function=True)
    watch = uses.tracker.begin(compile(f"import {Path(path).stem}", "<suite>", "exec"))
    with follower.following():
        found = _import(path, top)
    trace = watch.end("" if isinstance(found, ModuleType) else type(found).__name__)
    if not isinstance(found, ModuleType):
        return explained(found)
    names.update(vars(found))
    tests = [name for name, value in vars(found).items() if _is_test(name, value)]
    return Suite(names, tests, uses, uses.of_import(trace, follower))


def loaded_names(pattern: str, namespace: dict[str, object], top: str) -> Suite:
    """The functions of the namespace whose names fit, such as `test_*`."""
    uses = Uses(Tracker(namespace, top, joining=True), top, by_function=False)
    tests = [
        name
        for name, value in namespace.items()
        if fnmatch.fnmatchcase(name, pattern) and _is_test(name, value)
    ]
    return Suite(namespace, tests, uses, {"used": {}, "unsteady": ""})


def _is_test(name: str, value: object) -> bool:
    return name.startswith("test") and inspect.isfunction(value)


def _forget_modules(top: str) -> None:
    """Those of the working directory: they are imported anew, whatever a cell had of them."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.realpath(file).startswith(f"{top}/"):
            del sys.modules[name]
    importlib.invalidate_caches()


def _import(path: str, top: str) -> ModuleType | BaseException:
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, str(Path(top, path)))
    if spec is None or spec.loader is None:
        return ImportError(f"{path} is no file of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        return error
    return module


def _failure(function: object) -> BaseException | None:
    assert callable(function)
    try:
        _finish(function)
    except BaseException as error:
        return error
    return None


def _finish(function: Callable[[], object]) -> None:
    made = function()
    if inspect.iscoroutine(made):
        asyncio.new_event_loop().run_until_complete(made)


def _judged(error: BaseException | None) -> Plain:
    if error is None:
        return {"outcome": "passed", "error": None}
    outcome = "failed" if isinstance(error, AssertionError) else "error"
    return {"outcome": outcome, "error": explained(error)}
