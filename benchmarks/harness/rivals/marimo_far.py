"""marimo: its kernel in edit mode with automatic running, as `marimo edit` starts it; one cell is edited and run."""

from __future__ import annotations

import asyncio
import json
import queue
import sys

from marimo._ast.app_config import _AppConfig
from marimo._config.config import DEFAULT_CONFIG
from marimo._messaging.types import KernelMessage, KernelStreams, Stream
from marimo._runtime.commands import AppMetadata, ExecuteCellCommand
from marimo._runtime.kernel_lifecycle import KernelArgs, create_kernel
from marimo._runtime.runtime import Kernel
from marimo._session.model import SessionMode
from marimo._types.ids import CellId_t

from benchmarks.harness.rivals.far_end import Case, RefusedError, serve


class Runs(Stream):  # type: ignore[misc]  # marimo is not there when types are checked
    """Receives the messages for the front end, and counts the cells that begin to run."""

    def __init__(self) -> None:
        self.count = 0

    def write(self, data: KernelMessage) -> None:
        told = json.loads(data)
        self.count += told.get("op") == "cell-op" and told.get("status") == "running"

    def copy_for_thread(self) -> Stream:
        return self


class Notebook:
    def __init__(self, cells: list[str]) -> None:
        self.runs = Runs()
        self._kernel = self._start()
        self.run(dict(enumerate(cells, 1)))

    def _start(self) -> Kernel:
        arguments = KernelArgs(
            streams=KernelStreams(stream=self.runs, stdout=None, stderr=None, stdin=None),
            debugger=None,
            configs={},
            app_metadata=AppMetadata({}, {}, app_config=_AppConfig(), argv=[], filename=None),
            user_config=DEFAULT_CONFIG,
            mode=SessionMode.EDIT,
            control_queue=queue.Queue(),
            set_ui_element_queue=queue.Queue(),
            virtual_file_storage=None,
        )
        return create_kernel(arguments)[0]

    def run(self, cells: dict[int, str]) -> None:
        """Raises RefusedError where marimo does not run a notebook with these cells."""
        self.runs.count = 0
        orders = [ExecuteCellCommand(CellId_t(str(number)), code) for number, code in cells.items()]
        asyncio.get_event_loop().run_until_complete(self._kernel.run(orders))
        refused = {type(error).__name__ for errors in self._kernel.errors.values() for error in errors}
        if refused:
            raise RefusedError(", ".join(sorted(refused)))

    def look(self, look: str) -> str:
        try:
            return repr(eval(look, self._kernel.globals))
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def full(cells: list[str], look: str) -> str:
    return Notebook(cells).look(look)


def patched(case: Case) -> tuple[str, str, int]:
    notebook = Notebook(case.cells)
    before = notebook.look(case.look)
    notebook.run({case.step: case.code})
    return before, notebook.look(case.look), notebook.runs.count


if __name__ == "__main__":
    asyncio.set_event_loop(asyncio.new_event_loop())
    serve(full, patched, int(sys.argv[1]))
