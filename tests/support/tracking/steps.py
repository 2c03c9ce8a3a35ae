"""Steps in a namespace of this process, traced by their own tracker."""

from __future__ import annotations

import ast
import builtins
import os
from pathlib import Path
from types import ModuleType

from cenote_worker.execution.trace import StepTrace
from cenote_worker.jail.process.process_context import forget_levels
from cenote_worker.jail.tracking.tracker import Tracker


class Steps:
    """Runs cells one after the other, as a kernel does, and returns their traces."""

    def __init__(self, workdir: Path) -> None:
        self.module = ModuleType("__main__")
        self.namespace: dict[str, object] = vars(self.module)
        self.namespace["__builtins__"] = builtins
        self.tracker = Tracker(self.namespace, str(workdir))
        self.failure = ""
        self.bound_only: frozenset[str] | None = None
        self._number = 0
        self._environ: dict[str, str] = {}

    def run(self, source: str) -> StepTrace:
        self._number += 1
        body, last = _split(source, f"<cell {self._number}>")
        if self._environ != dict(os.environ):  # pytest sets the present test there
            self.tracker.look_anew()
        watch = self.tracker.begin(body, last, displays=last is not None)
        self.failure = ""
        try:
            exec(body, self.namespace)
            value = None if last is None else eval(last, self.namespace)
            if value is not None:
                self.namespace["_"] = value
                repr(value)
        except Exception as error:
            self.failure = type(error).__name__
        forget_levels()
        trace = watch.end(self.failure)
        self._environ = dict(os.environ)
        self.bound_only = None if self.failure else watch.bound_only
        return trace

    def good(self, source: str) -> StepTrace:
        trace = self.run(source)
        assert self.failure == "", f"{source!r} ended with {self.failure}"
        return trace


def _split(source: str, filename: str) -> tuple[object, object]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None if last is None else compile(ast.Expression(last.value), filename, "eval", dont_inherit=True)
    return compile(tree, filename, "exec", dont_inherit=True), value
