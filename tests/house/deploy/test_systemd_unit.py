"""The unit: valid for systemd, restricted where possible, and open where jails need it."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from tests.house.deploy.manifests import DEPLOY

from cenote.gateway.machines.own_cluster_unsafe import START_PATIENCE
from cenote.gateway.process.restart_policy import PATIENCE

UNIT = DEPLOY / "cenote.service"
SYSTEMD = shutil.which("systemd-analyze")

Settings = dict[str, dict[str, list[str]]]


def parse(text: str) -> Settings:
    """Values by section and name; a name may occur more than once."""
    found: Settings = {}
    for line in (line for line in text.splitlines() if line and not line.startswith("#")):
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), defaultdict(list))
        else:
            name, _, value = line.partition("=")
            section[name].append(value)
    return found


@pytest.fixture
def service() -> dict[str, list[str]]:
    return parse(UNIT.read_text())["Service"]


@pytest.mark.skipif(SYSTEMD is None, reason="systemd is not installed here")
def test_systemd_knows_each_line(tmp_path: Path) -> None:
    """Except the one setting that came with systemd 254. The program is replaced: it is not at its path here."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/cenote/bin/cenote", "/bin/true"))
    done = subprocess.run(
        [str(SYSTEMD), "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if unit.name in line]
    assert [] == [line for line in complaints if "DelegateSubgroup" not in line]


def test_one_that_hangs_is_started_again(service: dict[str, list[str]]) -> None:
    """It reports its readiness, and sends heartbeats; without them it is killed, which counts as a failure."""
    assert (["notify"], ["on-failure"]) == (service["Type"], service["Restart"])
    assert PATIENCE <= int(service["WatchdogSec"][0]) <= 2 * PATIENCE
    assert START_PATIENCE < int(service["TimeoutStartSec"][0])
    assert ["SIGUSR1"] == service["WatchdogSignal"]  # which makes it write a trace, and does not end it


def test_sections_are_those_of_a_service() -> None:
    """It is started with the machine."""
    found = parse(UNIT.read_text())
    assert ["Unit", "Service", "Install"] == list(found)
    assert ["multi-user.target"] == found["Install"]["WantedBy"]


def test_state_is_where_the_platform_is_told_to_keep_it(service: dict[str, list[str]]) -> None:
    """Below the folder that systemd creates for it, which other users cannot read."""
    folder = f"/var/lib/{service['StateDirectory'][0]}"
    variables = dict(word.split("=", 1) for line in service["Environment"] for word in line.split())
    assert f"{folder}/state" == variables["XDG_STATE_HOME"]
    assert f"{folder}/config" == variables["XDG_CONFIG_HOME"]
    assert (["0700"], ["0077"]) == (service["StateDirectoryMode"], service["UMask"])


def test_jails_get_control_groups(service: dict[str, list[str]]) -> None:
    """Delegated, with the platform itself in a subgroup; a jail over its limit does not end the service."""
    assert {"cpu", "memory", "pids"} == set(service["Delegate"][0].split())
    assert (["platform"], ["continue"]) == (service["DelegateSubgroup"], service["OOMPolicy"])


@pytest.mark.parametrize(
    "name", ["ProtectKernelTunables", "ProtectKernelLogs", "ProtectHostname", "ProtectControlGroups"]
)
def test_what_would_leave_no_jail_is_off(service: dict[str, list[str]], name: str) -> None:
    """The file says so, so that such a setting is not added by mistake."""
    assert ["no"] == service[name]


def test_the_service_has_no_power(service: dict[str, list[str]]) -> None:
    """An ordinary user without capabilities and without a way to gain any."""
    assert (["cenote"], [""], ["yes"]) == (
        service["User"],
        service["CapabilityBoundingSet"],
        service["NoNewPrivileges"],
    )
