"""Runs test suites beside the namespace: each in a forked child, each of its tests in a child of that.

A suite is a file of the working directory, or functions of the namespace by a pattern of names; a test is a function
whose name begins with `test` and that can be called without arguments. What each test used is what was seen of it:
the functions of the user's files that ran, and for all else what a tracker of cells says (files, names, hidden
state). A test need not be run again as long as all of that has the versions that it had.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from cenote_worker.in_jail.testing.apart import Ended, Plain, apart
from cenote_worker.in_jail.testing.failure import ended
from cenote_worker.in_jail.testing.suite import Suite, loaded_file, loaded_names
from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS


def run(namespace: dict[str, object], request: Mapping[str, object]) -> Plain:
    """request: `suites`, each with `name`, whether it is a `file`, and `former` results by test; `seconds`; `items`.

    items: what former tests used, with versions; `used` of a former result has numbers of these.
    Gives `suites`: each with `name`, `error` (None, or why it could not be loaded) and `tests`.
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
        return apart(lambda: _run(namespace, request, deadline), deadline)
    except Ended as gone:
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
