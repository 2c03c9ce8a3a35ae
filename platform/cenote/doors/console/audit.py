"""Pages of what is on record: shared values with their holders, requests to the network, the audit log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from cenote.connection import AuditVerification
from cenote.doors.console.session import PageRoute, Visit, platform_of
from cenote_security.auth.tokens import Scope

OF_A_PAGE: Final = 100

MOST_FACTS: Final = 600
"""Characters of an entry's facts."""


async def _references(visit: Visit) -> Response:
    visit.caller.require(Scope.REFERENCES)
    platform, after = platform_of(visit, "references"), visit.request.query_params.get("after", "")
    found = await asyncio.to_thread(lambda: platform.references(after=after, limit=OF_A_PAGE))
    return visit.page(
        "references",
        title="References",
        references=found,
        following=found[-1].id if len(found) == OF_A_PAGE else "",
    )


async def _egress(visit: Visit) -> Response:
    return await _log(visit, "egress", "Requests to the network", kind="network")


async def _audit(visit: Visit) -> Response:
    return await _log(visit, "audit", "Audit log", kind=visit.request.query_params.get("kind", ""))


async def _verify(visit: Visit) -> Response:
    await visit.form()
    visit.caller.require(Scope.ADMIN)
    verification = await asyncio.to_thread(platform_of(visit, "the audit log").verify_audit)
    return await _log(visit, "audit", "Audit log", verification=verification)


async def _log(
    visit: Visit, template: str, title: str, *, kind: str = "", verification: AuditVerification | None = None
) -> Response:
    visit.caller.require(Scope.ADMIN)
    platform, asked = platform_of(visit, "the audit log"), visit.request.query_params
    refused, page = asked.get("refused") == "1", asked.get("page", "")
    found = await asyncio.to_thread(
        lambda: platform.audit(
            page=page, limit=OF_A_PAGE, kind=kind, refused=refused, runtime=asked.get("runtime", "")
        )
    )
    return visit.page(
        template,
        title=title,
        records=found.records,
        following=found.following,
        refused=refused,
        kind=kind,
        runtime=asked.get("runtime", ""),
        first=not page,
        verification=verification,
        written=_written,
    )


def _written(facts: Mapping[str, Any]) -> str:
    """The facts in one line."""
    text = " ".join(
        f"{name}={fact if isinstance(fact, str) else json.dumps(fact)}"
        for name, fact in sorted(facts.items())
        if fact not in ("", None)
    )
    return text if len(text) <= MOST_FACTS else f"{text[:MOST_FACTS]} ..."


ROUTES: Final[tuple[PageRoute, ...]] = (
    ("GET", "/references", _references),
    ("GET", "/egress", _egress),
    ("GET", "/audit", _audit),
    ("POST", "/audit/verify", _verify),
)
