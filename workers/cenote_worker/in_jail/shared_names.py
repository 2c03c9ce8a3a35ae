"""`shared`: the common namespace of a runtime as an object, for authors who have a namespace of their own."""

from __future__ import annotations

import builtins
from collections.abc import Mapping

from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.variables import user_names

__builtins__ = BUILTINS

_SHOWN = 50


class Shared:
    """Names that all authors of this runtime see: `shared.df = ...`, `shared.df`, `del shared.df`."""

    def __init__(self, namespace: dict[str, object]) -> None:
        # Attributes are the names themselves, as in a module: reading one costs what any attribute does.
        self.__dict__ = namespace

    def __repr__(self) -> str:
        names = user_names(vars(self))
        more = f", ... {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"<shared names: {', '.join(names[:_SHOWN]) or 'none'}{more}>"


def offer(namespace: dict[str, object]) -> None:
    """Makes `shared` known to all code, as a builtin: it is nobody's variable, and a user may have the name."""
    builtins.shared = Shared(namespace)  # type: ignore[attr-defined]


def shared_names() -> Mapping[str, object]:
    """What `shared` has; nothing before it is offered, or when a cell has put something else in its place."""
    shared = vars(builtins).get("shared")
    return vars(shared) if type(shared) is Shared else {}
