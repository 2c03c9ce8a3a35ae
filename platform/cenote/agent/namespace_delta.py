"""What a block did to the namespace, as one short line."""

from __future__ import annotations

from collections.abc import Sequence

from cenote.agent.signatures import type_name
from cenote.harness.spoken import shown
from cenote_worker.results import VariableInfo

_MAX_NAMES = 20
"""Names in one line; a block that makes more of them has made something else than variables to remember."""


def namespace_delta(before: Sequence[VariableInfo], after: Sequence[VariableInfo]) -> str:
    """`+ df DataFrame (344, 8); ~ n int; - tmp`: new, changed and removed variables; empty if there are none.

    Changed is what looks different from outside: another type, shape, size or description. Names come out of a jail:
    only names pass.
    """
    old, new = ({info.name: info for info in known if info.name.isidentifier()} for known in (before, after))
    parts = [f"+ {_text(info)}" for name, info in new.items() if name not in old]
    parts += [f"~ {_text(info)}" for name, info in new.items() if name in old and old[name] != info]
    parts += [f"- {shown(name)}" for name in old if name not in new]
    more = [f"... and {len(parts) - _MAX_NAMES} more"] if len(parts) > _MAX_NAMES else []
    return "; ".join(parts[:_MAX_NAMES] + more)


def _text(info: VariableInfo) -> str:
    kind = type_name(info)
    return f"{shown(info.name)} {kind} {info.shape}" if info.shape else f"{shown(info.name)} {kind}"
