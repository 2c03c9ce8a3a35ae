"""A plain IPython shell: gives the result of a full run for rivals that are shells themselves."""

from __future__ import annotations

from IPython.core.interactiveshell import InteractiveShell


def look_in(shell: InteractiveShell, look: str) -> str:
    """The repr of an expression, evaluated without the hooks that apply to cells."""
    try:
        return repr(eval(look, shell.user_ns))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def full_run(cells: list[str], look: str) -> str:
    """Runs all cells in a shell of this process, and ignores failures."""
    shell = InteractiveShell.instance()
    for cell in cells:
        shell.run_cell(cell, store_history=True)
    return look_in(shell, look)
