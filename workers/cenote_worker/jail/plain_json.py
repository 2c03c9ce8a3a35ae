"""JSON for code that runs beside cells: its own encoder and decoder, independent of a cell's changes to `json`.

Programs replace `json.dumps` or `JSONEncoder.default`, and tests replace them by mocks. The C functions used here
look nothing up in `json`, except the class of an error.
"""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import (  # type: ignore[attr-defined]
    c_encode_basestring,
    c_encode_basestring_ascii,
    c_make_encoder,
)
from json.scanner import c_make_scanner  # type: ignore[attr-defined]
from types import SimpleNamespace
from typing import Any, Final

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_SPACE: Final = " \t\n\r"


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it has {name}, which JSON does not have; send null, or a text")


def _scanner(constant: Callable[[str], float]) -> Callable[[str, int], tuple[Any, int]]:
    context = SimpleNamespace(
        strict=True,
        object_hook=None,
        object_pairs_hook=None,
        parse_float=float,
        parse_int=int,
        parse_constant=constant,
    )
    return c_make_scanner(context)  # type: ignore[no-any-return]


_scan: Final = _scanner(
    {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}.__getitem__
)
_scan_strictly: Final = _scanner(_refuse_constant)


def dumps(value: object, *, ascii_only: bool = True) -> str:
    """Raises TypeError for what is not plain data, ValueError for circular references."""
    spelled = c_encode_basestring_ascii if ascii_only else c_encode_basestring
    encode = c_make_encoder({}, _refused, spelled, None, ": ", ", ", False, False, True)
    return "".join(encode(value, 0))


def loads(data: bytes | str, *, strict: bool = False) -> Any:
    """Raises ValueError for what is not JSON, RecursionError for what is too deep. strict: no NaN either."""
    text = (data if isinstance(data, str) else data.decode()).strip(_SPACE)
    try:
        value, end = (_scan_strictly if strict else _scan)(text, 0)
    except StopIteration:
        raise ValueError("no value") from None
    if end != len(text):
        raise ValueError("more than one value")
    return value


def _refused(value: object) -> object:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")  # as Python says it
