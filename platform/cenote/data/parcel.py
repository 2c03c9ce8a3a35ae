"""A function on its way to other machines: its source, or a pickle that only a jail opens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from cenote.runtime.injectables import check_name
from cenote.runtime.references import ObjectReference
from cenote_security.errors import UsageError
from cenote_worker.content import Content


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionParcel:
    """name: what it is called where it arrives. Either `source` defines it, or `parts` are what was shared of it."""

    name: str
    source: str = ""
    parts: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, function: ObjectReference | str, name: str | None) -> Self:
        """Raises UsageError for what is neither, and for source without a name in it that could be meant."""
        if isinstance(function, ObjectReference):
            shared = function.content()
            try:
                parts = tuple(bytes(part) for part in shared.unpack())
            finally:
                shared.close()
            return cls(name=_checked(name or function.info.name), parts=parts)
        if not isinstance(function, str):
            raise UsageError(
                "the function is what `runtime.share(name)` gives, or source text; a function of this process would "
                f"run here, outside any jail ({type(function).__name__} was given)"
            )
        if name is None:
            raise UsageError("`name` says which of the names that the source defines is the function")
        return cls(name=_checked(name), source=function)

    def reference(self) -> ObjectReference:
        """What was shared, for a runtime of this process. Raises OSError when there is no memory for it."""
        return ObjectReference.of_sealed(Content.pack(self.parts), None)


def _checked(name: str) -> str:
    check_name(name, "function")
    return name
