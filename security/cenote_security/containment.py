"""Whether one policy allows at most what another does: an agent hands on no more than it has. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from cenote_security.environment import Environment, is_digest
from cenote_security.network import Allow
from cenote_security.options import Definition, definitions
from cenote_security.policy import Mount, SandboxPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Weakness:
    """The first field in which a policy allows more than another one."""

    field: str
    allowed: object
    wanted: object


def weakness(child: SandboxPolicy, parent: SandboxPolicy) -> Weakness | None:
    """Where `child` allows what `parent` does not; None if it is as strong or stronger.

    What cannot be compared counts as weaker unless it is equal.
    """
    for field, is_within in compared().items():
        wanted, allowed = getattr(child, field), getattr(parent, field)
        if not is_within(wanted, allowed):
            return Weakness(field=field, allowed=allowed, wanted=wanted)
    return None


def weakness_of_joined(has: SandboxPolicy, asked: SandboxPolicy) -> Weakness | None:
    """`weakness` of a runtime of a platform, which has compared the environment if it was asked for by name."""
    if isinstance(asked.environment, str) and not is_digest(asked.environment):
        asked = replace(asked, environment=has.environment)
    return weakness(has, asked)


def _at_most(wanted: float | None, allowed: float | None) -> bool:
    """None is no limit."""
    return (math.inf if wanted is None else wanted) <= (math.inf if allowed is None else allowed)


def _no_less(wanted: bool, allowed: bool) -> bool:
    """For what forbids something."""
    return wanted or not allowed


def _as_strong_in(order: Sequence[str]) -> Callable[[str, str], bool]:
    def is_within(wanted: str, allowed: str) -> bool:
        if wanted not in order or allowed not in order:
            return wanted == allowed
        return order.index(wanted) >= order.index(allowed)

    return is_within


def _reaches_no_further(wanted: str | Allow, allowed: str | Allow) -> bool:
    if not isinstance(wanted, Allow):
        return True
    if not isinstance(allowed, Allow):
        return False
    return (
        all(_is_permitted(destination, allowed) for destination in wanted.destinations)
        and wanted.connections <= allowed.connections
        and wanted.rate <= allowed.rate
        and wanted.volume_bytes <= allowed.volume_bytes
        and wanted.credentials.items() <= allowed.credentials.items()
    )


def _is_permitted(destination: str, allowed: Allow) -> bool:
    """`*.a.example.com` ends as each name below it does, so that it is permitted just where they all are."""
    name, _, port = destination.rpartition(":")
    return allowed.permits(name, int(port))


def _sees_no_more(wanted: Sequence[Mount], allowed: Sequence[Mount]) -> bool:
    """A mount below one of the parent's is refused: a link there, which its jail cannot follow, may lead anywhere."""
    readable = {(mount.source, mount.target) for mount in allowed}
    writable = {(mount.source, mount.target) for mount in allowed if mount.writable}
    return all((mount.source, mount.target) in (writable if mount.writable else readable) for mount in wanted)


def _is_none_or_the_same(wanted: object, allowed: object) -> bool:
    """Another one might show another folder of the machine."""
    return wanted is None or wanted == allowed


def _rule(known: Definition) -> Callable[..., bool] | None:
    """How values of an option compare; None for one that opens nothing."""
    if known.option.opens_nothing:
        return None
    if known.option.weakest_first:
        return _as_strong_in(known.option.weakest_first)
    if known.option.forbids:
        return _no_less
    if Environment in known.options_classes:
        return _is_none_or_the_same
    if Allow in known.options_classes:
        return _reaches_no_further
    return _sees_no_more if Mount in known.options_classes else _at_most


@cache
def compared() -> Mapping[str, Callable[..., bool]]:
    """By option: whether what a child wants is within what its parent has. What matters most comes first: walls, then
    ways out, then amounts.

    Not among them is what opens nothing: what a jail's code finds in its environment or imported already, its client
    gave it; a snapshot is memory and a process like any other; and being watched or not lets nobody out.
    """
    by_weight = sorted(
        definitions(SandboxPolicy), key=lambda known: (not known.choices, not known.options_classes)
    )
    rules = {known.name: _rule(known) for known in by_weight}
    return {name: rule for name, rule in rules.items() if rule is not None}
