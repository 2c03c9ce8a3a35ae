"""A plain IPython shell: what a full run gives, for rivals that are shells themselves."""

from __future__ import annotations

from IPython.core.interactiveshell import InteractiveShell


def look_in(shell: InteractiveShell, look: str) -> str:
    """The repr of an expression, asked for past everything that hooks into cells."""
    try:
        return repr(eval(look, shell.user_ns))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def full_run(cells: list[str], look: str) -> str:
    """All cells in a shell of this process, whatever fails."""
    shell = InteractiveShell.instance()
    for cell in cells:
        shell.run_cell(cell, store_history=True)
    return look_in(shell, look)
