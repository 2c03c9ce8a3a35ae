"""The page of the fleet: machines, and curves of what all runtimes do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from cenote.connection import NodeInfo
from cenote.doors.console.figures import EVERY, PLANS, chart
from cenote.doors.console.session import PageRoute, Visit
from cenote_security.auth.tokens import Scope

NODES_SHOWN: Final = 200


async def _fleet(visit: Visit) -> Response:
    sees_all = Scope.MACHINES in visit.caller.scopes
    nodes: Sequence[NodeInfo] = ()
    if visit.caller.platform is not None and sees_all:
        nodes = (await asyncio.to_thread(visit.caller.platform.describe)).nodes
    samples = visit.figures.samples if sees_all else ()
    return visit.page(
        "machines",
        title="Fleet",
        sees_all=sees_all,
        is_platform=visit.caller.platform is not None,
        nodes=nodes[:NODES_SHOWN],
        more=max(len(nodes) - NODES_SHOWN, 0),
        charts=[chart(plan, samples) for plan in PLANS] if samples else (),
        since=samples[0].at if samples else 0.0,
        every=EVERY,
    )


ROUTES: Final[tuple[PageRoute, ...]] = (("GET", "/fleet", _fleet),)
