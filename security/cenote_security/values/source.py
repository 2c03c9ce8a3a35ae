"""What rebuilding a node may draw on."""

from __future__ import annotations

from collections.abc import Mapping

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect
from cenote_security.values.limits import Limits
from cenote_security.values.node import Json
from cenote_security.values.region import RegionReader
from cenote_security.values.shapes import Shape, shape_of


class Source:
    """The buffers of one encoded value, and the classes that its reader named."""

    def __init__(self, region: RegionReader, classes: Mapping[str, type], limits: Limits) -> None:
        self.region = region
        self.limits = limits
        self._classes = classes
        self._shapes: dict[str, Shape] = {}

    def shape(self, reference: Json, *kinds: str) -> Shape:
        """The class that the reader means by "module:qualname", if it is of one of these kinds.

        Raises UnsafeValueError when the reader named no such class: a name from a jail never imports anything.
        """
        name = expect.text(reference)
        found = self._shapes.get(name)
        if found is None:
            found = self._shapes[name] = self._look_up(name)
        if found.kind not in kinds:
            expect.malformed(f"class {found.name} is rebuilt in another way")
        return found

    def _look_up(self, name: str) -> Shape:
        if not name.isprintable():
            expect.malformed("the name of a class is not printable")
        cls = self._classes.get(name)
        if cls is None:
            raise UnsafeValueError(name.replace(":", ".").removeprefix("builtins."))
        return shape_of(cls)
