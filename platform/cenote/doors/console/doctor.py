"""The page of the machine: which isolation holds here, what is missing, and the remedy."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response

from cenote.doors.console.session import PageRoute, Visit
from cenote.runtime.machine_report import machine
from cenote_security.auth.tokens import Scope


async def _doctor(visit: Visit) -> Response:
    visit.caller.require(Scope.MACHINES)
    return visit.page("doctor", title="Doctor", machine=machine(), report=await asyncio.to_thread(visit.exams.report), tried=False)


async def _try(visit: Visit) -> Response:
    """Starts a jail as well: the parts may be there and still not work together."""
    await visit.form()
    visit.caller.require(Scope.MACHINES)
    return visit.page("doctor", title="Doctor", machine=machine(), report=await asyncio.to_thread(visit.exams.diagnosis), tried=True)


ROUTES: Final[tuple[PageRoute, ...]] = (("GET", "/doctor", _doctor), ("POST", "/doctor", _try))
