"""Alert rules and the dashboard use existing metrics, with existing labels and values."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cenote.gateway.api.metrics import ALL

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy" / "monitoring" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "monitoring" / "dashboard.json"

SERIES = {
    f"{metric.full_name}{suffix}": metric
    for metric in ALL
    for suffix in (("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",))
}


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


QUERIES = [rule["expr"] for rule in alerts()] + [
    target["expr"] for panel in panels() for target in panel["targets"]
]


def wrong(query: str) -> list[str]:
    """The metrics, labels and values of a query that do not exist."""
    found = []
    names = re.findall(r"\bcenote_\w+", query)
    for name in names:
        if name not in SERIES:
            found.append(name)
    for name, label, value in re.findall(r'(cenote_\w+){(\w+)="(\w+)"', query):
        known = SERIES[name].labels if name in SERIES else {}
        if label not in known or (known[label] and value not in known[label]):
            found.append(f"{name}{{{label}={value}}}")
    labels = {"le", *(label for name in names if name in SERIES for label in SERIES[name].labels)}
    for group in re.findall(r"\bby \(([\w, ]+)\)", query):
        found += [label for label in group.split(", ") if label not in labels]
    return found


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_asks_for_what_there_is(query: str) -> None:
    assert [] == wrong(query)


@pytest.mark.parametrize(
    "query",
    [
        "cenote_no_such_total",
        "cenote_cells",
        "cenote_cell_duration_seconds",
        'cenote_kills_total{reason="oom"}',
        'cenote_kills_total{why="memory"}',
        "sum by (state) (cenote_cells_total)",
    ],
)
def test_a_query_that_asks_for_something_else_is_found(query: str) -> None:
    assert [] != wrong(query)


def test_each_metric_is_on_the_dashboard() -> None:
    asked = " ".join(target["expr"] for panel in panels() for target in panel["targets"])
    for metric in ALL:
        assert metric.full_name in asked, metric.name


def test_each_alert_says_what_to_do() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len({*names})
    for rule in alerts():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["remedy"]


def test_the_page_and_the_dashboard_are_those_of_the_table() -> None:
    """A changed metric changes both: `python scripts/monitoring.py` writes them."""
    script = runpy.run_path(str(ROOT / "scripts" / "monitoring.py"))
    page = (ROOT / "docs" / "operations.md").read_text()
    assert script["fresh_page"](page) == page
    assert script["dashboard"]() == DASHBOARD.read_text()
    for metric in ALL:
        assert f"`{metric.full_name}`" in page


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Debian has it in its package `prometheus`")
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True)
    assert 0 == done.returncode, done.stderr
