"""Every command line in deploy/ is one that `cenote` accepts."""

from __future__ import annotations

import json
import re

import pytest
from tests.house.deploy.manifests import DEPLOY, documents, pod_templates
from tests.house.deploy.test_systemd_unit import UNIT, parse

from cenote.cli.main import build_parser


def command_lines() -> list[list[str]]:
    (service,) = documents(DEPLOY / "compose.yaml")[0]["services"].values()
    (gateway,) = pod_templates()["gateway"]["spec"]["containers"]
    unit = parse(UNIT.read_text())["Service"]["ExecStart"][0].split()
    (default,) = re.findall(r"^CMD (.+)$", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    return [service["command"], gateway["args"], unit[1:], json.loads(default)]


@pytest.mark.parametrize("line", command_lines(), ids=" ".join)
def test_the_platform_is_started_as_its_command_line_allows(line: list[str]) -> None:
    """Options and their values; argparse ends the program at an invalid one."""
    assert build_parser().parse_args(line).foreground


def questions() -> dict[str, list[str]]:
    """Commands of health checks and probes, by their origin."""
    (service,) = documents(DEPLOY / "compose.yaml")[0]["services"].values()
    (gateway,) = pod_templates()["gateway"]["spec"]["containers"]
    probes = {name: gateway[name]["exec"]["command"] for name in gateway if name.endswith("Probe")}
    unit = parse(UNIT.read_text())["Service"]["ExecStartPost"][0].lstrip("-").split()
    (check,) = re.findall(
        r"^HEALTHCHECK .*CMD (.+)$", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE
    )
    return probes | {
        "compose": service["healthcheck"]["test"][1:],
        "unit": ["cenote", *unit[1:]],
        "image": json.loads(check),
    }


@pytest.mark.parametrize(
    "asks", ["startupProbe", "readinessProbe", "livenessProbe", "compose", "unit", "image"]
)
def test_the_platform_is_asked_as_its_command_line_allows(asks: str) -> None:
    """Liveness checks, which restart a gateway, ask whether it is alive; readiness checks ask whether it is ready."""
    program, *arguments = questions()[asks]
    ready = asks in ("readinessProbe", "compose", "unit")
    parsed = build_parser().parse_args(arguments)
    assert ("cenote", not ready, ready) == (program, parsed.live, parsed.ready)
