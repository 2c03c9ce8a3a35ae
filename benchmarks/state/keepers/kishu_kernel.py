"""Kishu in a Jupyter kernel: it commits after each cell, and `checkout` is its own call.

Its test mode is on, in which it does not wait for a browser to save and reload the notebook.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Self

from benchmarks.kernel import Kernel
from benchmarks.rivals import interpreter
from benchmarks.state.keeper import Kept
from benchmarks.state.keepers.kernel_keeper import KernelKeeper

BEGIN = "from kishu import init_kishu; init_kishu()"
HEAD = "print(_kishu._kishu_branch.get_head().commit_id)"
STAMP = "import time; _ended = time.time(), time.process_time()"
TELL = "print(*_ended, time.process_time())"
CHECK_OUT = "print(_kishu.checkout({commit!r}, skip_notebook=True))"
EMPTY_NOTEBOOK = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


class KishuKeeper(KernelKeeper):
    def __init__(self, folder: Path, memory: int, *, keeping: bool = True) -> None:
        super().__init__(folder, memory, keeping=keeping)
        self._notebook = folder / "state.ipynb"
        if not self._notebook.exists():
            self._notebook.write_text(json.dumps(EMPTY_NOTEBOOK))
        self._kept = self._head = ""
        self._taken = Kept(wall=0.0, cpu=0.0)
        self._kernel = self._start()

    def _start(self) -> Kernel:
        root = str(self.folder)
        environment = {
            "TEST_NOTEBOOK_PATH": str(self._notebook),
            "ENV_KISHU_TEST_MODE": "1",
            "KISHU_PATH_ROOT": root,
        }
        kernel = Kernel(interpreter("kishu"), environment, root)
        if self.keeping:
            kernel.execute(BEGIN, silent=True)
        return kernel

    def execute(self, code: str) -> str:
        return self._kernel.execute(code)

    def prepare(self, code: str) -> None:
        """An ordinary cell, after which Kishu commits; the time after the cell's last line is the cost."""
        before = self._stored()
        self._kernel.execute(f"{code}\n{STAMP}")
        now = time.time()
        ended, cpu_ended, cpu = map(float, self.peek(TELL).split())
        self._taken = Kept(wall=now - ended, cpu=cpu - cpu_ended, stored=self._stored() - before)
        self._head = self.peek(HEAD).strip()

    def peek(self, code: str) -> str:
        """A silent cell, which is not committed."""
        return self._kernel.execute(code, silent=True)

    def keep(self) -> Kept:
        self._kept = self._head
        return self._taken

    def go_back(self) -> None:
        self._check_out(self._kernel)

    def _check_out(self, kernel: Kernel) -> None:
        kernel.execute(CHECK_OUT.format(commit=self._kept), silent=True)

    def branch(self) -> Self:
        """A second kernel on the same notebook. Kishu has no call for that, but does not prevent it."""
        other = type(self)(self.folder, self.memory)
        other._kept = self._kept
        other.go_back()
        return other

    def _stored(self) -> int:
        return sum(path.stat().st_size for path in self.folder.glob("*.kishudb*"))
