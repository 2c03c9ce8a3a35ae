"""Which cells would not let the copy of the state before them live, as far as that can be told beforehand."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from cenote_proto.v1 import jail_pb2
from cenote_worker.content import Content
from cenote_worker.in_jail.cells import Cell
from cenote_worker.in_jail.kernel import Kernel
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.snapshots.copies import Copies
from cenote_worker.in_jail.snapshots.costly_names import CostlyNames
from cenote_worker.in_jail.snapshots.sweeping_calls import sweep_of
from cenote_worker.in_jail.snapshots.unsharing import unshare

__builtins__ = BUILTINS

PATIENCE: Final = 50
"""Milliseconds for which the state behind a sweep is not copied unless somebody asks for something: another sweep, as
in a loop of cells, would give the copy up, and have paid for it. A client sends its next cell within some two.
"""


class Foresight:
    """Of one worker. Of cells that are to be undone if they fail nothing is foreseen: their copy is asked for."""

    def __init__(self, kernel: Kernel, copies: Copies) -> None:
        self._kernel = kernel
        self._copies = copies
        self._costly = CostlyNames(kernel.namespace)
        self._had_copy = False
        self._patience = 0
        self._swept = False
        """Whether the latest cell rewrote large arrays, and was seen to be about to."""

    def patience(self) -> int:
        """Milliseconds for which to wait for a request before this state is copied. Only once for each state: who
        asks for something all the while, such as for the names of variables, has it copied all the same.
        """
        patience, self._patience = self._patience, 0
        return patience

    def is_costly(self, request: jail_pb2.Request) -> bool:
        """Whether it is such a cell. To be asked once of each request, before anything is done for it."""
        if not (self._costly.are_known or self._swept) or request.WhichOneof("body") != "execute":
            return False
        if request.execute.atomic:
            return False
        code = _inline_code(request.execute.code)
        return self._costly.foresees(code) or (
            self._swept and self._kernel.is_turn_of(request.author, request.private) and self._sweeps(code)
        )

    def begin_cell(self) -> None:
        """One is about to be run."""
        self._had_copy, self._swept = self._copies.is_kept, False

    def see(self, cell: Cell) -> None:
        """Gives the copies up if this cell, which has been compiled, would pay too much for them."""
        sweep = sweep_of(cell.statements, self._kernel.namespace, self._kernel.definition)
        if sweep is None:
            return
        self._swept, self._patience = True, PATIENCE
        self._copies.forgo()
        for array in sweep.ordered:
            unshare(array)

    def end_cell(self, code: str) -> None:
        """What has become of its copy is known."""
        lost = self._copies.is_lost
        if self._had_copy and (lost or self._copies.is_kept):  # of one given up beforehand nothing is known
            self._costly.ran(code, lost=lost)

    def _sweeps(self, code: str) -> bool:
        return (
            sweep_of(_parsed(code, self._kernel), self._kernel.namespace, self._kernel.definition) is not None
        )


def _parsed(code: str, kernel: Kernel) -> Sequence[ast.stmt]:
    """Empty for what is no Python, and for what may bring warnings: the cell's own parsing shows them."""
    return () if "\\" in code else kernel.statements(code)


def _inline_code(payload: jail_pb2.Payload) -> str:
    """Empty for what is too long for a packet."""
    if payload.attached:
        return ""
    return Content.delivered(payload, []).only_part().decode("utf-8", "surrogatepass")
