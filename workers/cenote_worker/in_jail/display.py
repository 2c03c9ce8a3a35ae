"""What a cell shows besides text: displayed objects, the value of its last expression, its figures."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Mapping
from os import urandom
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

from cenote_worker.in_jail.bounded import bounded_repr, type_name
from cenote_worker.in_jail.bundles import Forms, RichForms
from cenote_worker.in_jail.figures import close_figures, is_figure, open_figures
from cenote_worker.in_jail.limits import KernelLimits
from cenote_worker.in_jail.output import OutputBuffer
from cenote_worker.in_jail.pristine import BUILTINS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__builtins__ = BUILTINS

T = TypeVar("T")
Bundle = dict[str, str | bytes]

_MOST_OF_AN_ID = 200
_BUILT_IN = frozenset((int, float, bool, str, bytes, list, tuple, dict, set, frozenset))


class DisplayHandle:
    """A place among what a cell displays, as IPython's class of this name."""

    __module__ = "IPython.core.display_functions"

    def __init__(self, display_id: str | None = None) -> None:
        self.display_id = display_id or _new_id()

    def __repr__(self) -> str:
        return f"<DisplayHandle display_id={self.display_id}>"

    def display(self, obj: object, **options: Any) -> None:
        """Shows an object in this place."""
        builtins.display(obj, display_id=self.display_id, **options)  # type: ignore[attr-defined]

    def update(self, obj: object, **options: Any) -> None:
        """Shows an object in place of what is there. In a later cell it is shown among that cell's outputs."""
        self.display(obj, **options)


class Displays:
    """Hands displayed objects to the output, at most so many per cell."""

    def __init__(self, output: OutputBuffer, limits: KernelLimits) -> None:
        self._output = output
        self._limits = limits
        self._count = 0
        self._names: set[str] = set()
        self._clears = False
        self._captured: list[Bundle] | None = None
        self._figures_shown: list[object] = []

    def begin_cell(self) -> None:
        self._forget()
        self._captured = None
        self._figures_shown.clear()

    def display(
        self,
        *objects: object,
        include: Collection[str] | None = None,
        exclude: Collection[str] | None = None,
        metadata: object = None,  # noqa: ARG002  (IPython's; no output has any)
        transient: Mapping[str, object] | None = None,
        display_id: str | bool | None = None,
        raw: bool = False,
        clear: bool = False,
        **_options: object,
    ) -> DisplayHandle | None:
        """Shows objects in their richest forms; text/plain is always among them.

        include, exclude: MIME types. raw: the objects are dictionaries of MIME types. clear: what the cell has put
        out is dropped before. display_id: True makes one. With one the handle is returned, by which the object can be
        replaced.
        """
        told = display_id if display_id is not None else (transient or {}).get("display_id")
        handle = None
        if told:
            handle = DisplayHandle(None if told is True else _checked_id(told))
        name = "" if handle is None else handle.display_id
        if clear:
            self.clear(wait=True)
        for obj in objects:
            if raw:
                forms, text = self._bundle(obj)
                self._emit(obj, text, _chosen(forms, include, exclude), name)
            elif not self._shows_itself(obj):
                text = bounded_repr(obj, self._limits.value_chars)
                self._emit(obj, text, _chosen(self._rich(obj), include, exclude), name)
        return handle

    def update(self, obj: object, *, display_id: str, **options: Any) -> None:
        """Shows an object in place of the one with this `display_id`."""
        self.display(obj, display_id=display_id, **options)

    def clear(self, wait: bool = False) -> None:
        """Drops what the cell has printed and displayed so far. wait: as soon as it puts out something else."""
        if self._captured is not None:
            self._captured.clear()
        else:
            self._clears = wait
            self._output.clear(wait=wait)
            if not wait:
                self._forget()

    def capture(self, into: list[Bundle] | None) -> list[Bundle] | None:
        """Keeps what is displayed in a list, or shows it again. Gives what held before."""
        before, self._captured = self._captured, into
        return before

    def value(self, obj: object) -> str | None:
        """The text of a last expression's value, None for None. A rich form is displayed as well."""
        if obj is None:
            return None
        text = bounded_repr(obj, self._limits.value_chars)
        if type(obj) in _BUILT_IN:
            return text
        if type(obj) is CoroutineType:
            return f"{text} (not run: write `await` before it)"
        if not self._shows_itself(obj) and (rich := self._rich(obj)):
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
            self.note(f"figures could not be shown: {type_name(type(error))}")

    def _show_figure(self, figure: Figure) -> None:
        self._emit(figure, bounded_repr(figure, self._limits.value_chars), self._rich(figure))

    def _rich(self, obj: object) -> Forms:
        return self._forms(lambda collector: collector.of(obj))

    def _bundle(self, obj: object) -> tuple[Forms, str]:
        """Of what is displayed as it is: the forms, and the text for who can show none of them."""
        forms = self._forms(lambda collector: collector.of_bundle(obj))
        given = obj.get("text/plain") if isinstance(obj, dict) else None
        return forms, given if isinstance(given, str) else f"<{', '.join(forms) or 'nothing to show'}>"

    def _shows_itself(self, obj: object) -> bool:
        return type(obj) not in _BUILT_IN and self._forms(lambda collector: collector.shows_itself(obj))

    def _forms(self, collect: Callable[[RichForms], T]) -> T:
        collector = RichForms(self._limits)
        forms = collect(collector)
        for note in collector.notes:
            self.note(note)
        return forms

    def _emit(self, obj: object, text: str, rich: Forms, name: str = "") -> None:
        if is_figure(obj):
            self._figures_shown.append(obj)
        bundle: Bundle = {"text/plain": text, **rich}
        if self._captured is not None:
            self._captured.append(bundle)
            return
        if self._clears:
            self._forget()
        if name not in self._names:
            self._count += 1
        if self._count <= self._limits.displays:
            self._names.update([name] if name else [])
            self._output.display(bundle, name)
        elif self._count == self._limits.displays + 1:
            self.note(f"only the first {self._limits.displays} displayed objects of a cell are kept")

    def _forget(self) -> None:
        self._count, self._clears = 0, False
        self._names.clear()

    def note(self, text: str) -> None:
        """Says on stderr what could not be shown."""
        self._output.write("stderr", f"display: {text}\n")


def _new_id() -> str:
    return urandom(16).hex()


def _checked_id(told: object) -> str:
    if not isinstance(told, str) or len(told) > _MOST_OF_AN_ID:
        raise TypeError(f"display_id is True or a string of at most {_MOST_OF_AN_ID} characters")
    return str.__str__(told)


def _chosen(forms: Forms, include: Collection[str] | None, exclude: Collection[str] | None) -> Forms:
    return {
        mime: form
        for mime, form in forms.items()
        if (not include or mime in include) and not (exclude and mime in exclude)
    }
