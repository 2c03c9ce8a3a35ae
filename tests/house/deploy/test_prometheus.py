"""Prometheus scrapes a platform as docs/operations.md says, and its alerts come and go with what they are about."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.house.deploy.test_monitoring import RULES, alerts
from tests.support.cluster.standing import StandingPlatform
from tests.waiting import until

from cenote.gateway.machines.own_cluster_unsafe import _free_ports

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        shutil.which("prometheus") is None,
        reason="Prometheus is not here; Debian has it in its package `prometheus`",
    ),
]

CONFIGURATION = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
scrape_configs:
  - job_name: cenote
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ["{target}"]}}]
rule_files: [{rules}]
"""


class Prometheus:
    """A server of its own, which looks each second. Its rules are those of `deploy/`, but for their delays: 2 s."""

    def __init__(self, folder: Path, target: str, token: str) -> None:
        (port,) = _free_ports(1)
        self._url = f"http://127.0.0.1:{port}/api/v1/"
        (folder / "token").write_text(token)
        (folder / "alerts.yaml").write_text(re.sub(r"\bfor: \w+", "for: 2s", RULES.read_text()))
        (folder / "prometheus.yaml").write_text(
            CONFIGURATION.format(token=folder / "token", target=target, rules=folder / "alerts.yaml")
        )
        self._said = (folder / "said").open("wb")
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=self._said,
            stderr=subprocess.STDOUT,
        )

    def ask(self, path: str) -> Any:
        """None while it does not answer yet."""
        try:
            with urllib.request.urlopen(self._url + path, timeout=10) as answer:
                return json.loads(answer.read())["data"]
        except OSError:
            return None

    def targets(self) -> list[str]:
        return [one["health"] for one in (self.ask("targets") or {}).get("activeTargets", [])]

    def active(self) -> dict[str, str]:
        """Alerts that are pending or firing."""
        found = (self.ask("alerts") or {}).get("alerts", [])
        return {one["labels"]["alertname"]: one["state"] for one in found}

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._said.close()


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[StandingPlatform]:
    platform = StandingPlatform(tmp_path)
    yield platform
    platform.command("down")


def test_alerts_come_and_go(platform: StandingPlatform, tmp_path: Path) -> None:
    """The database is gone, and is back; then the platform is."""
    found = json.loads(platform.command("up", "--without-ray", "--port", "0", "--json").stdout)
    platform.address = found["address"]
    token = platform.command("token", "create", "default", "--scope", "machines").stdout.strip()
    with ExitStack() as opened:
        prometheus = Prometheus(tmp_path, found["http"].removeprefix("http://"), token)
        opened.callback(prometheus.end)
        until(lambda: ["up"] == prometheus.targets())
        (group,) = prometheus.ask("rules")["groups"]
        assert [rule["alert"] for rule in alerts()] == [rule["name"] for rule in group["rules"]]
        until(lambda: all(rule["health"] == "ok" for rule in prometheus.ask("rules")["groups"][0]["rules"]))
        until(lambda: "CenoteNotReady" not in prometheus.active())

        database = platform.state / "gateway.db"
        database.rename(database.with_suffix(".away"))
        until(lambda: "firing" == prometheus.active().get("CenoteNotReady"))
        database.with_suffix(".away").rename(database)
        until(lambda: "CenoteNotReady" not in prometheus.active())

        platform.command("down")
        until(lambda: "firing" == prometheus.active().get("CenoteDown"))
