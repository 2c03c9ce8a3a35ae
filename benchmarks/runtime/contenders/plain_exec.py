"""`exec` in a dict with stdout redirected: the lower bound, without isolation, errors or limits."""

from __future__ import annotations

import contextlib
import io
from collections.abc import MutableMapping

from benchmarks.runtime.contenders.same_process import SameProcessContender


class PlainExecContender(SameProcessContender):
    def __init__(self) -> None:
        self._namespace: dict[str, object] = {"__name__": "__main__"}

    @property
    def namespace(self) -> MutableMapping[str, object]:
        return self._namespace

    def execute(self, code: str) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "<cell>", "exec"), self._namespace)
        return printed.getvalue()
