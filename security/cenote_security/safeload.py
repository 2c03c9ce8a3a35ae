"""The trusted face of the value encoding: what a client calls on bytes that came out of a jail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cenote_security.errors import UsageError
from cenote_security.sealed import Buffer
from cenote_security.values.decoder import decode
from cenote_security.values.limits import DEFAULT_LIMITS, Limits
from cenote_security.values.shapes import class_name, class_reference


def class_table(classes: Iterable[type]) -> dict[str, type]:
    """Classes by the name that both sides of the wall use for them. Of two with one name the later counts.

    Raises UsageError for what is not a class.
    """
    table: dict[str, type] = {}
    for cls in classes:
        if not isinstance(cls, type):
            raise UsageError(f"classes=[...] takes classes, not {class_name(type(cls))}")
        table[class_reference(cls)] = cls
    return table


def load(
    header: bytes,
    region: Buffer = b"",
    *,
    classes: Iterable[type] | Mapping[str, type] = (),
    limits: Limits = DEFAULT_LIMITS,
) -> object:
    """Rebuild a value that a jail encoded. Nothing is unpickled, imported or looked up by a name from the jail.

    region: the mapped memory that came along; private and writable, arrays use it in place.
    classes: whose instances may be rebuilt, or a table made by `class_table`.

    Raises UnsafeValueError when the value holds an instance of another class, MalformedValueError when the bytes
    are not an encoded value.
    """
    table = classes if isinstance(classes, Mapping) else class_table(classes)
    return decode(header, region, classes=table, limits=limits)
