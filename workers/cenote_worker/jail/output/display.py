"""What a cell shows besides text: displayed objects, the value of its last expression, its figures.

The representations of an object (MIME type to text or bytes) come from the methods that notebooks call. `%%capture`
takes output instead of showing it.
"""

from __future__ import annotations

import base64
import builtins
import io
import sys
from collections.abc import Callable, Collection, Mapping
from math import isfinite
from os import urandom
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

from cenote_proto.scalars import utf8_text
from cenote_worker.jail import plain_json
from cenote_worker.jail.libraries.matplotlib_figures import close_figures, figure_png, is_figure, open_figures
from cenote_worker.jail.output import e2b_forms
from cenote_worker.jail.output.limits import KernelLimits
from cenote_worker.jail.output.streams import OutputBuffer
from cenote_worker.jail.rendering.bounded_text import bases, bounded_repr, bounded_str, type_name
from cenote_worker.process.pristine import BUILTINS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__builtins__ = BUILTINS

Forms = dict[str, str | bytes]

_METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
    "_repr_pdf_": "application/pdf",
}
_SHOWS_ITSELF = "_ipython_display_"
_FAILED = object()
_MOST_FORMS = 16
_PLAIN = frozenset((int, float, bool, complex, str, bytes, list, tuple, dict, set, frozenset, range))
_class_dict = type.__dict__["__dict__"].__get__


class RichForms:
    """Collects an object's representations besides text/plain. An error becomes a note, never an exception."""

    def __init__(self, limits: KernelLimits) -> None:
        self._limits = limits
        self.notes: list[str] = []

    def shows_itself(self, obj: object) -> bool:
        """Whether the object has displayed itself, by its own method."""
        return _SHOWS_ITSELF in _offered(type(obj)) and self._call(obj, _SHOWS_ITSELF) is not _FAILED

    def of_bundle(self, bundle: object) -> Forms:
        """Representations that are given directly. Raises TypeError for what is no bundle."""
        if not isinstance(bundle, dict):
            raise TypeError(f"raw=True displays a dictionary of MIME types, not {type_name(type(bundle))}")
        forms: Forms = {}
        self._add_all(forms, bundle)
        return dict(sorted(forms.items()))

    def of(self, obj: object) -> Forms:
        """Representations within the limits; empty for plain values."""
        if type(obj) in _PLAIN:
            return {}
        forms: Forms = {}
        offered = _offered(type(obj))
        if "_repr_mimebundle_" in offered:
            self._add_bundle(forms, obj)
        for method, mime in _METHODS.items():
            if method in offered:
                self._add(forms, mime, self._call(obj, method))
        if is_figure(obj):
            self._add(forms, "image/png", self._guard("the figure", lambda: figure_png(obj)))
        if "image/png" in forms:
            forms.pop("image/jpeg", None)
        if e2b_forms.wanted():
            self._add(forms, e2b_forms.DATA, self._guard("the table", lambda: e2b_forms.data_of(obj)))
            self._add(forms, e2b_forms.CHART, self._guard("the chart", lambda: e2b_forms.chart_of(obj)))
        return dict(sorted(forms.items()))

    def _add_bundle(self, forms: Forms, obj: object) -> None:
        bundle = self._call(obj, "_repr_mimebundle_", include=None, exclude=None)
        if type(bundle) is tuple and bundle:
            bundle = bundle[0]  # the second part is metadata
        if type(bundle) is dict:
            self._add_all(forms, bundle)

    def _add_all(self, forms: Forms, bundle: dict[object, object]) -> None:
        for mime, form in list(bundle.items())[:_MOST_FORMS]:
            if type(mime) is str and "/" in mime and len(mime) <= 100 and mime != "text/plain":
                self._add(forms, utf8_text(mime), form)

    def _add(self, forms: Forms, mime: str, form: object) -> None:
        ready = self._guard(mime, lambda: _ready(mime, form))
        if isinstance(ready, bytes) and len(ready) > self._limits.display_bytes:
            self.notes.append(f"{mime} of {len(ready):,} bytes left out")
        elif isinstance(ready, str) and len(ready) > self._limits.display_chars:
            self.notes.append(f"{mime} of {len(ready):,} characters left out")
        elif isinstance(ready, (str, bytes)):
            forms[mime] = ready

    def _call(self, obj: object, method: str, **options: object) -> object:
        what = f"{type_name(type(obj))}.{method}"
        return self._guard(what, lambda: getattr(obj, method)(**options))

    def _guard(self, what: str, action: Callable[[], object]) -> object:
        try:
            return action()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.notes.append(f"{what} raised {type_name(type(error))}: {bounded_str(error, 200)}")
            return _FAILED


def _offered(cls: type) -> set[str]:
    """The representation methods that the class defines. The instance is not asked: proxies offer anything."""
    found: set[str] = set()
    for base in bases(cls):
        members: Mapping[str, object] = _class_dict(base)
        found.update(
            name for name in (*_METHODS, "_repr_mimebundle_", _SHOWS_ITSELF) if members.get(name) is not None
        )
    return found


def _ready(mime: str, form: object) -> str | bytes | None:
    """The form as text or bytes; base64 images are decoded. None for anything else."""
    if isinstance(form, tuple) and form:
        form = form[0]  # with metadata
    if isinstance(form, (bytes, bytearray, memoryview)):
        return bytes(form)
    if isinstance(form, str):
        text = utf8_text(str.__str__(form))
        raster = mime.startswith("image/") and "xml" not in mime
        return base64.b64decode(text, validate=False) if raster else text
    if isinstance(form, (dict, list)):
        return utf8_text(plain_json.dumps(_finite(form), ascii_only=False))
    return None


def _finite(data: object) -> object:
    """With null for NaN and infinities, which JSON does not have. Raises RecursionError for what is too deep."""
    if isinstance(data, dict):
        return {key: _finite(item) for key, item in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(item) for item in data]
    return None if isinstance(data, float) and not isfinite(data) else data


T = TypeVar("T")
Bundle = dict[str, str | bytes]

_MOST_OF_AN_ID = 200
_BUILT_IN = frozenset((int, float, bool, str, bytes, list, tuple, dict, set, frozenset))


class DisplayHandle:
    """A place in a cell's display output, as IPython's class of this name."""

    __module__ = "IPython.core.display_functions"

    def __init__(self, display_id: str | None = None) -> None:
        self.display_id = display_id or _new_id()

    def __repr__(self) -> str:
        return f"<DisplayHandle display_id={self.display_id}>"

    def display(self, obj: object, **options: Any) -> None:
        """Shows an object in this place."""
        builtins.display(obj, display_id=self.display_id, **options)  # type: ignore[attr-defined]

    def update(self, obj: object, **options: Any) -> None:
        """Replaces the object in this place. In a later cell it is shown among that cell's outputs."""
        self.display(obj, **options)


class Displays:
    """Passes displayed objects to the output, up to a limit per cell."""

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

        include, exclude: MIME types. raw: the objects are dictionaries of MIME types. clear: the cell's output so far
        is dropped first. display_id: True makes one. With one the handle is returned, by which the object can be
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
        """Drops what the cell has printed and displayed so far. wait: when it next prints or displays something."""
        if self._captured is not None:
            self._captured.clear()
        else:
            self._clears = wait
            self._output.clear(wait=wait)
            if not wait:
                self._forget()

    def capture(self, into: list[Bundle] | None) -> list[Bundle] | None:
        """Keeps displayed objects in a list, or shows them again. Returns the former setting."""
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
        """Displays and closes pyplot's open figures, except those that the cell has displayed itself."""
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
        """The forms of an object that is displayed raw, and the text for clients that can show none of them."""
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


class RichOutput:
    """One displayed object, as IPython's class of this name. data: its representations by MIME type."""

    def __init__(self, data: Bundle) -> None:
        self.data = data

    def display(self) -> None:
        builtins.display(self.data, raw=True)  # type: ignore[attr-defined]

    def _repr_mimebundle_(self, **_options: object) -> Bundle:
        return self.data


class Capture:
    """Captured output, as IPython's `CapturedIO`. stdout, stderr: the text so far. outputs: displayed objects."""

    def __init__(self) -> None:
        self._out, self._err, self._shown = io.StringIO(), io.StringIO(), list[Bundle]()

    def begin(
        self, displays: Displays, *, stdout: bool = True, stderr: bool = True, display: bool = True
    ) -> Callable[[], None]:
        """Captures the streams and displayed objects that are True. Returns a function that ends it."""
        streams = sys.stdout, sys.stderr
        if stdout:
            sys.stdout = self._out
        if stderr:
            sys.stderr = self._err
        before = displays.capture(self._shown) if display else None

        def stop() -> None:
            sys.stdout, sys.stderr = streams
            if display:
                displays.capture(before)

        return stop

    @property
    def stdout(self) -> str:
        return self._out.getvalue()

    @property
    def stderr(self) -> str:
        return self._err.getvalue()

    @property
    def outputs(self) -> list[RichOutput]:
        return [RichOutput(bundle) for bundle in self._shown]

    def show(self) -> None:
        """Outputs what was captured to the place where it would have gone."""
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        for output in self.outputs:
            output.display()

    __call__ = show

    def __str__(self) -> str:
        return self.stdout
