"""What builds an environment for a tenant is killed in the middle: nothing is half built, and it goes on."""

from __future__ import annotations

import http.server
import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.environments.operator import Operator
from tests.support.environments.wheels import write_index
from tests.waiting import until

from cenote.connection import Platform
from cenote_security.environment import Environment
from cenote_security.errors import CenoteError
from cenote_security.policy import SandboxPolicy
from cenote_worker.environments.store import EnvironmentStore


class StuckIndex:
    """An index on loopback whose wheels come only once `free` is set. asked: a wheel was asked for."""

    def __init__(self, folder: Path) -> None:
        self.free, self.asked = threading.Event(), threading.Event()
        index = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.endswith(".whl"):
                    index.asked.set()
                    index.free.wait()
                super().do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), partial(Handler, directory=str(folder))
        )
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/simple"

    def close(self) -> None:
        self.free.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def index(wheels: Path, tmp_path: Path) -> Iterator[StuckIndex]:
    write_index(wheels, tmp_path / "simple")
    index = StuckIndex(tmp_path)
    try:
        yield index
    finally:
        index.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["gateway", "agent"])
def test_a_killed_build_goes_on(kind: str, index: StuckIndex, tmp_path: Path) -> None:
    operator = Operator(tmp_path / "operator", tmp_path / "environments")
    kept = EnvironmentStore(tmp_path / "environments")
    more = ["--without-ray"] if kind == "gateway" else []
    try:
        platform = operator.up(
            *more, "--no-http", "--environment-index", index.url, "--environment-disk", "256MiB"
        )
        platform.runtime("first").close()  # its machine is up
        begun = platform.environments.build(Environment(["greeting==1.0"]), "words", wait=False)
        assert "building" == begun.state
        until(index.asked.is_set)
        for pid in [operator.pid] if kind == "gateway" else operator.processes("ray::NodeAgent"):
            os.kill(pid, signal.SIGKILL)
        assert [] == kept.all()
        index.free.set()
        built = until(lambda: _ready(platform))
        assert ("greeting==1.0", "tone==1.5") == built
        with platform.runtime("user", sandbox=SandboxPolicy(environment="words", preload=())) as runtime:
            assert "'1.0'" == runtime.execute("import greeting\ngreeting.VERSION").value
        assert 1 == len(kept.all())
        assert not list((kept.root / "staging").iterdir())
    finally:
        operator("down")


def _ready(platform: Platform) -> tuple[str, ...]:
    """Its packages, once it is ready."""
    try:
        found = platform.environments.get("words")
    except CenoteError:  # its gateway is being started again
        return ()
    assert "failed" != found.state, found.error
    return found.packages
