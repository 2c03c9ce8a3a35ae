"""What `name?` prints."""

from __future__ import annotations

import inspect

from cenote_worker.in_jail.bounded import bounded_str, shorten
from cenote_worker.in_jail.callables import signature_text
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.variables import describe_variable

__builtins__ = BUILTINS

_DOC_CHARS = 4_000
_SOURCE_CHARS = 20_000


def explain(obj: object, name: str, *, with_source: bool) -> str:
    """Name, type, signature and documentation of an object; its source instead when asked and known."""
    if with_source and (source := _source(obj)):
        return source
    info = describe_variable(name, obj)
    shape = f" {info.shape}" if info.shape else ""
    described = signature_text(obj) if callable(obj) else info.description
    head = f"{info.name}: {info.type}{shape} {described}".rstrip()
    documentation = _documentation(obj)
    if not callable(obj):
        documentation = documentation.partition("\n\n")[0]  # of its class, which is another question
    return f"{head}\n\n{documentation}" if documentation else head


def _documentation(obj: object) -> str:
    try:
        text = inspect.getdoc(obj)
    except Exception:  # __doc__ may be anything
        return ""
    return bounded_str(text, _DOC_CHARS) if text else ""


def _source(obj: object) -> str:
    try:
        return shorten(inspect.getsource(obj), _SOURCE_CHARS)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""
