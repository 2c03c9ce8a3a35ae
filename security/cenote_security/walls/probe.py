"""What this machine has for jails, their limits and their snapshots: each tried, none assumed."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from cenote_security.errors import UnavailableError
from cenote_security.walls import attempts
from cenote_security.walls.essentials import try_essentials
from cenote_security.walls.facilities import Facilities, Facility
from cenote_security.walls.fresh_python_unsafe import FreshPython
from cenote_security.walls.interpreter import running
from cenote_security.walls.namespaces import open_host_proc
from cenote_security.walls.trial import attempt

_PROBE_SECONDS: Final = 30.0
"""A hundred times what it takes."""


def probe() -> Facilities:
    """Try every facility, in a fresh process: this one may have threads, and forking it would not be safe.

    Raises UnavailableError when not even that process can be run.
    """
    process = FreshPython(running(), __name__, "print_facilities", capture=True)
    output = process.output(_PROBE_SECONDS)
    if not output or process.status != 0:
        raise UnavailableError(f"the probing process failed with status {process.status}")
    return Facilities(found=tuple(Facility(**fields) for fields in json.loads(output)))


def print_facilities() -> None:
    """The probing process: print a JSON list."""
    print(json.dumps([asdict(facility) for facility in _try_all()]))


def _try_all() -> tuple[Facility, ...]:
    essential = try_essentials(open_host_proc())
    return (
        *essential.found,
        *(attempt(name, what, remedy) for name, what, remedy in attempts.ALL),
    )
