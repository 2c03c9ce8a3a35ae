"""What a cell shows besides text: displayed objects, the value of its last expression, its figures."""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING

from cenote_worker.in_jail.bounded import bounded_repr, type_name
from cenote_worker.in_jail.bundles import Forms, RichForms
from cenote_worker.in_jail.figures import close_figures, is_figure, open_figures
from cenote_worker.in_jail.limits import KernelLimits
from cenote_worker.in_jail.output import OutputBuffer
from cenote_worker.in_jail.pristine import BUILTINS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__builtins__ = BUILTINS

_BUILT_IN = frozenset((int, float, bool, str, bytes, list, tuple, dict, set, frozenset))


class Displays:
    """Hands displayed objects to the output, at most so many per cell."""

    def __init__(self, output: OutputBuffer, limits: KernelLimits) -> None:
        self._output = output
        self._limits = limits
        self._count = 0
        self._figures_shown: list[object] = []

    def begin_cell(self) -> None:
        self._count = 0
        self._figures_shown.clear()

    def display(self, *objects: object) -> None:
        """Shows objects in their richest forms; text/plain is always among them."""
        for obj in objects:
            self._emit(obj, bounded_repr(obj, self._limits.value_chars), self._rich(obj))

    def value(self, obj: object) -> str | None:
        """The text of a last expression's value, None for None. A rich form is displayed as well."""
        if obj is None:
            return None
        text = bounded_repr(obj, self._limits.value_chars)
        if type(obj) in _BUILT_IN:
            return text
        if type(obj) is CoroutineType:
            return f"{text} (not run: write `await` before it)"
        if rich := self._rich(obj):
            self._emit(obj, text, rich)
        return text

    def show_figures(self) -> None:
        """Displays and closes pyplot's open figures, those excepted that the cell has displayed itself."""
        try:
            figures = open_figures()
            for figure in figures:
                if not any(figure is shown for shown in self._figures_shown):
                    self._show_figure(figure)
            close_figures(figures)
        except Exception as error:  # a cell can leave anything in sys.modules
            self._note(f"figures could not be shown: {type_name(type(error))}")

    def _show_figure(self, figure: Figure) -> None:
        self._emit(figure, bounded_repr(figure, self._limits.value_chars), self._rich(figure))

    def _rich(self, obj: object) -> Forms:
        collector = RichForms(self._limits)
        forms = collector.of(obj)
        for note in collector.notes:
            self._note(note)
        return forms

    def _emit(self, obj: object, text: str, rich: Forms) -> None:
        self._count += 1
        if is_figure(obj):
            self._figures_shown.append(obj)
        if self._count <= self._limits.displays:
            self._output.display({"text/plain": text, **rich})
        elif self._count == self._limits.displays + 1:
            self._note(f"only the first {self._limits.displays} displayed objects of a cell are kept")

    def _note(self, text: str) -> None:
        self._output.write("stderr", f"display: {text}\n")
