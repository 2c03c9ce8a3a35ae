"""Every command line in deploy/ is one that `cenote` takes."""

from __future__ import annotations

import json
import re

import pytest
from tests.deploy.manifests import DEPLOY, documents, pod_templates
from tests.deploy.test_systemd_unit import UNIT, parse

from cenote.cli.main import build_parser


def command_lines() -> list[list[str]]:
    (service,) = documents(DEPLOY / "compose.yaml")[0]["services"].values()
    (gateway,) = pod_templates()["gateway"]["spec"]["containers"]
    unit = parse(UNIT.read_text())["Service"]["ExecStart"][0].split()
    (default,) = re.findall(r"^CMD (.+)$", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    return [service["command"], gateway["args"], unit[1:], json.loads(default)]


@pytest.mark.parametrize("line", command_lines(), ids=" ".join)
def test_the_platform_is_started_as_its_command_line_allows(line: list[str]) -> None:
    """Options and their values; argparse ends the program at one that is wrong."""
    assert build_parser().parse_args(line).foreground


def test_the_platform_is_asked_as_its_command_line_allows() -> None:
    """The question of health checks and probes."""
    assert callable(build_parser().parse_args(["status"]).handler)
