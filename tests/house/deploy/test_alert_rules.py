"""Each alert fires when what it is about happens, and not before; by Prometheus' own evaluation of rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.house.deploy.test_monitoring import RULES, alerts

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not here; Debian has it in its package `prometheus`"
)

INTERVAL = "1m"
"""Between two values of a series, and between two evaluations."""


@dataclass(frozen=True, kw_only=True)
class AlertCase:
    """fires, quiet: series, with their values minute by minute (`0+3x5`: 0, then 3 more each, five times).

    at: when that is looked at. labels: of the alert that fires, besides its severity.
    """

    fires: Mapping[str, str]
    quiet: Mapping[str, str]
    at: str
    labels: Mapping[str, str] = field(default_factory=dict)


CASES: dict[str, AlertCase] = {
    "CenoteDown": AlertCase(
        fires={'up{job="cenote"}': "1 0x5"},
        quiet={'up{job="cenote"}': "1 0 1x4"},
        at="4m",
        labels={"job": "cenote"},
    ),
    "CenoteNotReady": AlertCase(
        fires={"cenote_ready": "1 0x5"},
        quiet={"cenote_ready": "1 0 1x4"},
        at="4m",
    ),
    "CenoteMachineSilent": AlertCase(
        fires={'cenote_node_up{node="n1"}': "1 0x9", 'cenote_node_up{node="n2"}': "1x10"},
        quiet={'cenote_node_up{node="n1"}': "1 0x4 1x5"},
        at="8m",
        labels={"node": "n1"},
    ),
    "CenoteRuntimesLost": AlertCase(
        fires={'cenote_runtimes{state="lost"}': "1x9 2x10", 'cenote_runtimes{state="ready"}': "5x20"},
        quiet={'cenote_runtimes{state="lost"}': "2x20", 'cenote_runtimes{state="hibernated"}': "1x9 2x10"},
        at="15m",
        labels={"state": "lost"},
    ),
    "CenoteCellsOutOfMemory": AlertCase(
        fires={'cenote_kills_total{reason="memory"}': "0+1x20"},
        quiet={
            'cenote_kills_total{reason="memory"}': "0x10 10x10",
            'cenote_kills_total{reason="time"}': "0+9x20",
        },
        at="15m",
        labels={"reason": "memory"},
    ),
    "CenoteJailsEndedFromOutside": AlertCase(
        fires={'cenote_kills_total{reason="outside"}': "0x9 1x10"},
        quiet={
            'cenote_kills_total{reason="outside"}': "1x20",
            'cenote_kills_total{reason="memory"}': "0+1x20",
        },
        at="15m",
        labels={"reason": "outside"},
    ),
    "CenoteStartsSlow": AlertCase(
        fires={
            'cenote_runtime_start_seconds_bucket{start="warm",le="2.5"}': "0+1x40",
            'cenote_runtime_start_seconds_bucket{start="warm",le="5"}': "0+10x40",
            'cenote_runtime_start_seconds_bucket{start="warm",le="+Inf"}': "0+10x40",
        },
        quiet={
            'cenote_runtime_start_seconds_bucket{start="warm",le="0.5"}': "0+10x40",
            'cenote_runtime_start_seconds_bucket{start="warm",le="+Inf"}': "0+10x40",
            'cenote_runtime_start_seconds_bucket{start="cold",le="5"}': "0+10x40",
            'cenote_runtime_start_seconds_bucket{start="cold",le="+Inf"}': "0+10x40",
        },
        at="35m",
    ),
    "CenoteQueueLong": AlertCase(
        fires={'cenote_queue_depth{queue="starts"}': "101x20", 'cenote_queue_depth{queue="audit"}': "3x20"},
        quiet={'cenote_queue_depth{queue="starts"}': "101x8 99 101x8"},
        at="15m",
        labels={"queue": "starts"},
    ),
    "CenoteRecordIncomplete": AlertCase(
        fires={"cenote_unrecorded_deeds_total": "0x30 1x30"},
        quiet={"cenote_unrecorded_deeds_total": "7x60"},
        at="45m",
    ),
    "CenoteDiskLow": AlertCase(
        fires={"cenote_state_free_bytes": "1.9e9x20"},
        quiet={"cenote_state_free_bytes": "1.9e9x8 2.1e9x12"},
        at="15m",
    ),
    "CenoteEgressRefused": AlertCase(
        fires={
            'cenote_egress_requests_total{verdict="refused"}': "0+15x20",
            'cenote_egress_requests_total{verdict="allowed"}': "0+15x20",
        },
        quiet={
            'cenote_egress_requests_total{verdict="refused"}': "0+5x20",
            'cenote_egress_requests_total{verdict="allowed"}': "0+100x20",
        },
        at="15m",
    ),
    "CenoteTokensRefused": AlertCase(
        fires={'cenote_requests_total{outcome="unauthenticated"}': "0+10x20"},
        quiet={
            'cenote_requests_total{outcome="unauthenticated"}': "0+3x20",
            'cenote_requests_total{outcome="ok"}': "0+1000x20",
        },
        at="15m",
        labels={"outcome": "unauthenticated"},
    ),
}


def test_each_alert_has_a_case() -> None:
    assert [rule["alert"] for rule in alerts()] == [*CASES]


def evaluated(
    folder: Path, alert: str, series: Mapping[str, str], at: str, expected: list[dict[str, object]]
) -> None:
    """Fails with what promtool says."""
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": INTERVAL,
        "tests": [
            {
                "interval": INTERVAL,
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": expected}],
            }
        ],
    }
    file = folder / "tests.json"  # JSON is YAML
    file.write_text(json.dumps(tests))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("alert", CASES)
def test_it_fires(alert: str, tmp_path: Path) -> None:
    """With the labels, and the words, that its receiver gets."""
    case = CASES[alert]
    (rule,) = [rule for rule in alerts() if rule["alert"] == alert]
    said = {
        name: re.sub(r"{{ \$labels\.(\w+) }}", lambda found: case.labels[found[1]], text)
        for name, text in rule["annotations"].items()
    }
    expected = {"exp_labels": {**rule["labels"], **case.labels}, "exp_annotations": said}
    evaluated(tmp_path, alert, case.fires, case.at, [expected])


@pytest.mark.parametrize("alert", CASES)
def test_it_does_not_fire(alert: str, tmp_path: Path) -> None:
    """On something near, or on what it is about for a shorter time or in a smaller number."""
    evaluated(tmp_path, alert, CASES[alert].quiet, CASES[alert].at, [])
