"""Room for descriptors: each jail needs five, and the usual soft limit of 1,024 is an old default."""

from __future__ import annotations

import resource
from pathlib import Path

PER_JAIL = 16
"""Five for a jail, the others for values under way."""


def ensure_room(further: int = 0) -> None:
    """Raises the soft limit of open files towards the hard one when this process comes near it.

    further: descriptors that this jail may come to need, beside the usual ones.
    The soft limit is low for the sake of programs that use select(2); this process's own descriptors are not
    renumbered, so such a program sees high numbers only once it has opened that many.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= hard or _open_now() + PER_JAIL + further < soft // 2:
        return
    wanted = min(hard, soft * 4) if hard != resource.RLIM_INFINITY else soft * 4
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _open_now() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
