"""Cells of programs whose values are made again by running them."""

from __future__ import annotations

from cenote.runtime import PythonRuntime


def run(runtime: PythonRuntime, *cells: str) -> str | None:
    """Runs the cells and returns the value of the last one."""
    found = None
    for cell in cells:
        result = runtime.execute(cell)
        assert result.error is None, result.error
        found = result.value
    return found
