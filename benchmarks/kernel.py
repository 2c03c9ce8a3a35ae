"""A Jupyter kernel of any interpreter, through jupyter_client as notebooks and most code interpreters drive it."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from benchmarks.runtime.contender import CellFailedError

START_LIMIT = 120.0
CELL_LIMIT = 600.0
LOOK_AGAIN = 0.002
"""Seconds between two checks whether a kernel has crashed."""


class Kernel:
    """python: the interpreter with ipykernel. environment: added to that of this process. folder: working folder."""

    def __init__(
        self, python: str, environment: Mapping[str, str] | None = None, folder: str | None = None
    ) -> None:
        with tempfile.TemporaryDirectory() as specs:
            _describe(Path(specs) / "chosen", python)
            self._manager = KernelManager(
                kernel_name="chosen", kernel_spec_manager=KernelSpecManager(kernel_dirs=[specs])
            )
            self._manager.start_kernel(env={**os.environ, **(environment or {})}, cwd=folder)
        self.client: BlockingKernelClient = self._manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=START_LIMIT)
        self._one_cell_at_a_time = threading.Lock()

    def execute(self, code: str, *, silent: bool = False) -> str:
        """What the cell printed. silent: not run as a notebook cell, so no hook runs. Raises CellFailedError."""
        printed: list[str] = []

        def collect(message: dict[str, dict[str, str]]) -> None:
            printed.append(message["content"].get("text", ""))

        with self._one_cell_at_a_time:
            reply = self.client.execute_interactive(
                code, silent=silent, output_hook=collect, timeout=CELL_LIMIT
            )
        if reply["content"]["status"] != "ok":
            raise CellFailedError(f"{reply['content'].get('ename')}: {reply['content'].get('evalue')}")
        return "".join(printed)

    def crash(self, code: str) -> None:
        """Send a cell that ends the kernel's process; return when the process has ended."""
        self.client.execute(code)
        while self._manager.is_alive():
            time.sleep(LOOK_AGAIN)

    def close(self) -> None:
        self.client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()


def _describe(folder: Path, python: str) -> None:
    folder.mkdir()
    words = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": words, "display_name": "chosen", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))
