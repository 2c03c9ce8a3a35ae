"""Processes of a node that Ray starts write the log as the platform does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import title
from tests.waiting import until

import cenote
from cenote import Allow, SandboxPolicy

pytestmark = pytest.mark.slow


def test_lines_of_a_host_are_json_with_their_runtime_and_step(tmp_path: Path) -> None:
    platform = StandingPlatform(tmp_path)
    try:
        platform.up("--no-http", "--log-json")
        there = cenote.connect(platform.address, platform.token)
        policy = SandboxPolicy(network=Allow(["allowed.test"]), snapshots="none", tracking=False)
        runtime = there.runtime("logged", sandbox=policy)
        runtime.execute("1")
        runtime.execute("import urllib.request\nurllib.request.urlopen('http://refused.test')")
        id = there.find("logged").id
        (host,) = (pid for pid in platform.marked() if title(pid).startswith("ray::RuntimeActor"))
        written = Path(f"/proc/{host}/fd/2").resolve()

        def lines() -> list[dict[str, str]]:
            return [json.loads(line) for line in written.read_text().splitlines() if line.startswith("{")]

        until(lambda: any("refused.test" in line["event"] for line in lines()))
        (line,) = (line for line in lines() if "refused.test" in line["event"])
        assert (id, "2") == (line["runtime"], line["step"])
        assert line["tenant"]
    finally:
        platform.command("down")
