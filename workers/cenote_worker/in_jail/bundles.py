"""The representations of an object: MIME type to text or bytes, through the methods that notebooks call."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping

from cenote_proto.scalars import utf8_text
from cenote_worker.in_jail import e2b_forms, plain_json
from cenote_worker.in_jail.bounded import bases, bounded_str, type_name
from cenote_worker.in_jail.figures import figure_png, is_figure
from cenote_worker.in_jail.limits import KernelLimits
from cenote_worker.in_jail.pristine import BUILTINS

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
    """Collects what an object offers besides text/plain. What goes wrong becomes a note, never an exception."""

    def __init__(self, limits: KernelLimits) -> None:
        self._limits = limits
        self.notes: list[str] = []

    def shows_itself(self, obj: object) -> bool:
        """Whether the object has displayed what it wants shown, by its own method."""
        return _SHOWS_ITSELF in _offered(type(obj)) and self._call(obj, _SHOWS_ITSELF) is not _FAILED

    def of_bundle(self, bundle: object) -> Forms:
        """Representations that are given as they are. Raises TypeError for what is no bundle."""
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
    """Which representation methods the class defines. The instance is not asked: proxies offer anything."""
    found: set[str] = set()
    for base in bases(cls):
        members: Mapping[str, object] = _class_dict(base)
        found.update(
            name for name in (*_METHODS, "_repr_mimebundle_", _SHOWS_ITSELF) if members.get(name) is not None
        )
    return found


def _ready(mime: str, form: object) -> str | bytes | None:
    """The form as text or bytes; images that come as base64 are decoded. None for what is neither."""
    if isinstance(form, tuple) and form:
        form = form[0]  # with metadata
    if isinstance(form, (bytes, bytearray, memoryview)):
        return bytes(form)
    if isinstance(form, str):
        text = utf8_text(str.__str__(form))
        raster = mime.startswith("image/") and "xml" not in mime
        return base64.b64decode(text, validate=False) if raster else text
    if isinstance(form, (dict, list)):
        return utf8_text(plain_json.dumps(form, ascii_only=False))
    return None
