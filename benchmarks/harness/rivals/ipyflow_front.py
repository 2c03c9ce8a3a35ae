"""Which cells ipyflow runs when one is executed: its kernel reports dependencies, and its lab extension decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Edges = Mapping[str, list[str]]


class Schedule:
    """One answer of the kernel."""

    def __init__(self, answer: Mapping[str, object], dirty: Iterable[str]) -> None:
        """dirty: cells edited since they last ran."""
        self._answer = answer
        self.children = self._edges("cell_children")
        self._parents = self._edges("cell_parents")
        self._stale = self._edges("stale_parents")
        executed = self._cells("executed_cells")
        self._due = self._cells("ready_cells") | self._cells("waiting_cells") | set(dirty)
        self._due |= set(self._parents) - executed
        self.new = self._cells("new_ready_cells") | self._cells("forced_reactive_cells")

    def _edges(self, name: str) -> dict[str, list[str]]:
        found = self._answer[name]
        assert isinstance(found, dict), name
        return found

    def _cells(self, name: str) -> set[str]:
        found = self._answer[name]
        assert isinstance(found, list), name
        return set(found)

    def closure(self, cells: Iterable[str]) -> set[str]:
        """The cells, their dependents, and the outdated cells that these need, until nothing is added."""
        found, before = set(cells), set[str]()
        while found != before:
            before = set(found)
            for cell in before:
                self._push(found, cell)
            for cell in list(found):
                self._pull(found, cell)
        return found

    def _push(self, found: set[str], cell: str) -> None:
        found.add(cell)
        for child in self.children.get(cell, []):
            if child not in found:
                self._push(found, child)

    def _pull(self, found: set[str], cell: str, seen: frozenset[str] = frozenset()) -> None:
        """Parents that are due, or that made what has changed since."""
        parents, size = self._parents.get(cell, []), len(found)
        for parent in parents:
            if parent not in found and parent not in seen:
                self._pull(found, parent, seen | {cell})
        if len(found) > size or cell in self._due:
            found.add(cell)
        if cell not in found:
            return
        for parent in {*parents, *self._stale.get(cell, [])} - found:
            if parent in self._stale.get(cell, []) or self._spoiled(cell, parent, found):
                found.add(parent)
                self._pull(found, parent, seen)
        for child, stale in self._nested("stale_parents_by_child_by_executed_cell", cell).items():
            for parent in set(stale) - found if child in found else ():
                if parent in self._parents.get(child, []):
                    found.add(parent)
                    self._pull(found, parent, seen)

    def _spoiled(self, cell: str, parent: str, found: set[str]) -> bool:
        """Whether a cell that will run changes what the parent made for the cell."""
        by_executed = self._nested("stale_parents_by_executed_cell_by_child", cell)
        return any(parent in stale for executed, stale in by_executed.items() if executed in found)

    def _nested(self, name: str, cell: str) -> Edges:
        outer = self._answer[name]
        assert isinstance(outer, dict), name
        inner: dict[str, list[str]] = outer.get(cell, {})
        return inner
