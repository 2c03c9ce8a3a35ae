"""Runs the compiled code of a cell. This is where model-written code gets control."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import TYPE_CHECKING

from cenote_worker.jail.cells.source import CO_COROUTINE, Cell
from cenote_worker.jail.process.cell_boundary import InterruptHandler
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

if TYPE_CHECKING:
    from cenote_worker.jail.cells.event_loop import CellLoop

_eval = eval


class CellExecutor:
    """Runs cells in one namespace and one context, so that context variables set in a cell persist.

    The context contains more than users' own ContextVars: decimal precision and numpy's error and print settings are
    in it too, and a task with a copy of it would lose its changes. Each author has one namespace and one context; the
    event loop is shared, so that an author can await what another has made.
    """

    def __init__(self, namespace: dict[str, object], interrupts: InterruptHandler) -> None:
        self._namespace = namespace
        self._interrupts = interrupts
        self.context = contextvars.copy_context()
        self._loop: CellLoop | None = None

    def move(self, namespace: dict[str, object], context: contextvars.Context) -> None:
        """Switches to another author."""
        self._namespace, self.context = namespace, context

    def run(self, cell: Cell) -> object:
        """The value of the last expression, None without one. Raises what the code raises."""
        parts = [part for part in (cell.body, cell.last) if part is not None]
        if cell.awaits or any(map(_starts_tasks, parts)):
            return self._open_loop().run(self._run_in_loop(parts), self.context)
        value = None
        for part in parts:
            value = self.context.run(_eval, part, self._namespace)
        return value

    async def _run_in_loop(self, parts: list[CodeType]) -> object:
        """Runs all of the cell in one task: code before the first `await` may need the running loop too."""
        value = None
        for part in parts:
            value = _eval(part, self._namespace)
            if part.co_flags & CO_COROUTINE:
                value = await value
        return value

    def renew(self) -> None:
        """Called in a process other than the one whose loop it was."""
        if self._loop is not None:
            self._loop.renew()

    def _open_loop(self) -> CellLoop:
        if self._loop is None:
            # asyncio takes 50 ms to import, and few namespaces ever await.
            from cenote_worker.jail.cells.event_loop import CellLoop

            self._loop = CellLoop(self._interrupts)
        return self._loop


def _starts_tasks(code: CodeType) -> bool:
    """Whether code without an `await` needs a running loop, which any notebook has."""
    names = code.co_names
    return ("create_task" in names or "ensure_future" in names) and "run_until_complete" not in names


def run_file(path: str, arguments: list[str], namespace: dict[str, object]) -> None:
    """Runs a file of Python in the namespace, as `%run` does. arguments: its `sys.argv`."""
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    with _given(arguments):
        exec(code, namespace)


def run_module(name: str, arguments: list[str]) -> dict[str, object]:
    """Runs a module as a program, as `python -m` does. Returns its names."""
    import runpy

    with _given(arguments):
        return runpy.run_module(name, run_name="__main__", alter_sys=False)


@contextmanager
def _given(arguments: list[str]) -> Iterator[None]:
    before, sys.argv = sys.argv, arguments
    try:
        yield
    finally:
        sys.argv = before
