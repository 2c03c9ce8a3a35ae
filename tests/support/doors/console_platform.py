"""A platform in this process with its console, and something of each kind for the pages to show."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.doors.browser import Browser

from cenote import SandboxPolicy, connect
from cenote.connection import Platform
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.process.platform import platform
from cenote.gateway.store.database import Database, database_place
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.tenants import Tenants, Tokens
from cenote.plans import step
from cenote.platform_team import ModelSpec
from cenote.runtime import ObjectReference
from cenote.runtime.remote.address import token_file
from cenote.team.budget import Budget
from cenote_security.auth.tokens import Scope
from cenote_security.network import Allow

BARE = SandboxPolicy(preload=())

HOSTILE = (
    "</pre></textarea></title></svg><script>alert(1)</script><img src=x onerror=alert(1)>"
    "<style>body{display:none}</style>\x1b]0;owned\x07\u202e"
)
"""What jails and models say to break out of a page."""


@dataclass(frozen=True)
class ConsolePlatform:
    """url: of the console. token: of the operator, with each scope. reference: a value that is held."""

    url: str
    token: str
    client: Platform
    reference: ObjectReference
    state: StateFolder

    def limited(self, *scopes: Scope) -> str:
        """A token of the same tenant that is good for less."""
        with Database(database_place(self.state)) as database:
            tenant = Tenants(database).get("default")
            return Tokens(database).issue(tenant.id, scopes).text

    @contextmanager
    def browser(self, token: str = "") -> Iterator[Browser]:
        """One that has signed in."""
        browser = Browser(self.url)
        with browser.http:
            browser.open("/sign-in")
            browser.send("/sign-in", token=token or self.token)
            yield browser


@contextmanager
def console_platform(folder: Path) -> Iterator[ConsolePlatform]:
    """Has the runtime `etl`, the job `sort`, the team `pipeline`, a shared value, and a refused request."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("STATE", "CONFIG"):
            patch.setenv(f"XDG_{kind}_HOME", str(folder / kind))
        patch.delenv("CENOTE_ADDRESS", raising=False)
        patch.delenv("CENOTE_TOKEN", raising=False)
        state = StateFolder(path=folder / "state")
        options = PlatformOptions(state=state, port=0, http="127.0.0.1:0", without_ray=True)
        with platform(options) as running:
            client, token = connect(running.address, wait=0), token_file().read_text().strip()
            reference = _fill(client)
            yield ConsolePlatform(running.http, token, client, reference, state)


def _fill(client: Platform) -> ObjectReference:
    with client.runtime("etl", sandbox=BARE) as runtime:
        runtime.execute("table = list(range(1000))")
        runtime.execute(f"print({HOSTILE!r})\nraise ValueError({HOSTILE!r})")
        reference = runtime.share("table")
    with client.runtime(
        "reader", sandbox=SandboxPolicy(preload=(), network=Allow(["example.com"]))
    ) as runtime:
        runtime.execute("import urllib.request\nurllib.request.urlopen('http://elsewhere.test/', timeout=5)")
    job = client.jobs.submit(_tasks(), name="sort", sandbox=BARE, concurrency=2)
    asyncio.run(_team(client))
    assert job.wait(60).is_over
    return reference


def _tasks() -> Sequence[dict[str, str]]:
    """Some succeed, two fail of one cause, one of another."""
    codes = [
        "'sorted'",
        "{}['key']",
        "{}['other']",
        f"raise ValueError({HOSTILE!r})",
        f"print({HOSTILE!r})\n1",
    ]
    return [{"id": f"t{number}", "code": code} for number, code in enumerate(codes, start=1)]


async def _team(client: Platform) -> None:
    lines = (f"I count.\n```python\nfound = 41 + 1\nprint(found, {HOSTILE!r})\n```", f"It is 42. {HOSTILE}")
    team = client.team("pipeline", budget=Budget(tokens=50_000), sandbox=BARE)
    team.add("counter", model=ModelSpec(name="gpt-5", script=lines))
    await team.run(step("counter", "count them", gives="found"))
