"""Runs test suites beside the namespace: each in a forked child, each of its tests in a child of that.

A suite is a file of the working directory, or functions of the namespace by a name pattern; a test is a function
whose name begins with `test` and that can be called without arguments. The dependencies of each test are observed:
the functions of the user's files that ran, and for everything else the tracker's data (files, names, hidden state). A
test need not be run again as long as all of these have the same versions.
"""

from __future__ import annotations

import asyncio
import fnmatch
import importlib
import importlib.util
import inspect
import linecache
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from cenote_worker.jail.errors.cell_errors import exception_name
from cenote_worker.jail.errors.traceback_frames import ErrorFrame, characters, owner_of, short_path, steps_of
from cenote_worker.jail.rendering.bounded_text import bounded_str, shorten
from cenote_worker.jail.testing.forked_child import ChildEnded, Plain, in_forked_child
from cenote_worker.jail.testing.test_usage import CallFollower, SuiteUsage
from cenote_worker.jail.tracking.tracker import Tracker
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

Version = Callable[[str], str]
"""Gives the current version of a dependency."""


def because(former: Mapping[str, object] | None, version: Version) -> str:
    """Why the test has to run: `new`, `failed`, `unsteady`, or the dependency that has changed. Empty if it need not.

    former: `outcome`, `used` with the versions of its last run, `unsteady`: why its result may differ each time.
    """
    if former is None:
        return "new"
    if former["outcome"] != "passed":
        return "failed"
    if former["unsteady"]:
        return "unsteady"
    used = former["used"]
    assert isinstance(used, dict)
    return next((item for item in sorted(used) if version(item) != used[item]), "")


_MESSAGE = 1_000
_TRACEBACK = 4_000


def explained(error: BaseException) -> Plain:
    """Type, message, file, span and traceback. If there is no message, the failing line is used."""
    linecache.checkcache()
    steps = [step for step in steps_of(error) if step.owner in ("user", "cell")]
    innermost = steps[-1] if steps else None
    message = bounded_str(error, _MESSAGE)
    if not message and innermost is not None:
        message = shorten(_line(innermost, innermost.line).strip(), _MESSAGE)
    return {
        "type": exception_name(type(error)),
        "message": message,
        "file": _file(innermost.filename) if innermost is not None else "",
        "span": _span(innermost) if innermost is not None else [],
        "traceback": shorten(_text(error), _TRACEBACK),
    }


def ended(reason: str) -> Plain:
    """The error of a test whose process has ended."""
    return {"type": "ProcessEnded", "message": reason, "file": "", "span": [], "traceback": ""}


def _text(error: BaseException) -> str:
    """The traceback without the frames that led to the test."""
    first = error.__traceback__
    while first is not None and owner_of(first.tb_frame.f_code.co_filename) == "cenote":
        first = first.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, first))
    except Exception:  # a hostile `__str__`
        return ""


def _span(step: ErrorFrame) -> list[int]:
    """Line, column, end line, end column: lines from 1, columns from 0, in characters."""
    position = step.position
    if position is None:
        return [step.line, 0, step.line, len(_line(step, step.line))]
    first, last = _line(step, position.line), _line(step, position.end_line)
    start, end = characters(first, position.column), characters(last, position.end_column)
    return [position.line, start, position.end_line, end]


def _line(step: ErrorFrame, number: int) -> str:
    return linecache.getline(step.filename, number).rstrip("\n")


def _file(filename: str) -> str:
    return filename if filename.startswith("<") else short_path(filename)


class Suite:
    """namespace: where tests find their names, each test under its own. imported: the dependencies of loading the
    suite."""

    def __init__(
        self, namespace: dict[str, object], tests: list[str], uses: SuiteUsage, imported: Plain
    ) -> None:
        self.tests = tests
        self._namespace = namespace
        self._uses = uses
        self._imported = imported

    def outcome(self, test: str, former: Mapping[str, object] | None, deadline: float) -> Plain:
        """The outcome of a test, which is run if its former result is no longer valid."""
        reason = because(former, self._uses.version)
        if not reason:
            return {"name": test, "because": ""}
        started = time.monotonic()
        try:
            found = in_forked_child(lambda: self._run(test), deadline)
        except ChildEnded as gone:
            unsteady = {"used": {}, "unsteady": "its process ended"}
            found = {"outcome": "error", "error": ended(gone.reason), **unsteady}
        return {"name": test, "because": reason, "seconds": time.monotonic() - started, **found}

    def _run(self, test: str) -> Plain:
        function = self._namespace[test]
        follower = CallFollower(self._uses.top)
        self._uses.tracker.look_anew()  # in a fork Python draws other random numbers
        watch = self._uses.tracker.begin(compile(f"{test}()", "<test>", "eval"))
        with follower.following():
            error = _failure(function)
        trace = watch.end("" if error is None else type(error).__name__)
        return {**_judged(error), **self._uses.of(trace, follower, self._imported)}


def loaded_file(path: str, top: str) -> Suite | Plain:
    """The tests of a file, with current modules of the working directory; or why it has none."""
    _forget_modules(top)
    follower, names = CallFollower(top), dict[str, object]()
    uses = SuiteUsage(Tracker(names, top, joining=True), top, by_function=True)
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
    """The functions of the namespace whose names match, such as `test_*`."""
    uses = SuiteUsage(Tracker(namespace, top, joining=True), top, by_function=False)
    tests = [
        name
        for name, value in namespace.items()
        if fnmatch.fnmatchcase(name, pattern) and _is_test(name, value)
    ]
    return Suite(namespace, tests, uses, {"used": {}, "unsteady": ""})


def _is_test(name: str, value: object) -> bool:
    return name.startswith("test") and inspect.isfunction(value)


def _forget_modules(top: str) -> None:
    """Forgets modules of the working directory, so that they are imported again."""
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


def run(namespace: dict[str, object], request: Mapping[str, object]) -> Plain:
    """request: `suites`, each with `name`, whether it is a `file`, and `former` results by test; `seconds`; `items`.

    items: dependencies of former tests, with versions; `used` of a former result has indexes into these. Returns
    `suites`: each with `name`, `error` (None, or why it could not be loaded) and `tests`.
    """
    seconds, suites, items = request["seconds"], request["suites"], request["items"]
    assert isinstance(seconds, float)
    assert isinstance(suites, list)
    assert isinstance(items, list)
    deadline = time.monotonic() + seconds
    for suite in suites:
        for former in suite["former"].values():
            former["used"] = dict(items[number] for number in former["used"])
    return {"suites": [_apart(namespace, each, deadline) for each in suites]}


def _apart(namespace: dict[str, object], request: Mapping[str, object], deadline: float) -> Plain:
    try:
        return in_forked_child(lambda: _run(namespace, request, deadline), deadline)
    except ChildEnded as gone:
        return {"name": request["name"], "error": ended(gone.reason), "tests": []}


def _run(namespace: dict[str, object], request: Mapping[str, object], deadline: float) -> Plain:
    name, former = request["name"], request["former"]
    assert isinstance(name, str)
    assert isinstance(former, dict)
    top = str(Path.cwd())
    suite = loaded_file(name, top) if request["file"] else loaded_names(name, namespace, top)
    if not isinstance(suite, Suite):
        return {"name": name, "error": suite, "tests": []}
    tests = [suite.outcome(each, former.get(each), deadline) for each in suite.tests]
    return {"name": name, "error": None, "tests": tests}
