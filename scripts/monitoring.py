"""Writes what is made from the table of metrics, or checks it: `docs/operations.md` and Grafana's dashboard.

    python scripts/monitoring.py            writes them
    python scripts/monitoring.py --check    exit status 1 when one differs

The tables of the page stand between `<!-- metrics NAME -->` and `<!-- end -->`; the rest is written by hand.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, Final

from cenote.doors.metrics import OF_SERVERS
from cenote.gateway.api.metrics import OF_PLATFORM
from cenote_worker.process.metrics import OF_RUNTIMES, Metric

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "operations.md"
DASHBOARD: Final = ROOT / "deploy" / "monitoring" / "dashboard.json"
TABLES: Final = {"servers": OF_SERVERS, "runtimes": OF_RUNTIMES, "platform": OF_PLATFORM}
PLACE: Final = re.compile(r"(<!-- metrics (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

RATE: Final = "[$__rate_interval]"

PANELS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("Runtimes by state", "sum by (state) (cenote_runtimes)", "{{state}}", "short"),
    ("Machines", "cenote_node_up", "{{node}}", "short"),
    ("Ready", "cenote_ready", "ready", "short"),
    ("Cells by outcome", f"sum by (outcome) (rate(cenote_cells_total{RATE}))", "{{outcome}}", "ops"),
    (
        "Duration of cells, 50 and 95 %",
        "histogram_quantile({q}, sum by (le) (rate(cenote_cell_duration_seconds_bucket" + RATE + ")))",
        "{q}",
        "s",
    ),
    (
        "What cells take beside their code, 50 and 95 %",
        "histogram_quantile({q}, sum by (le) (rate(cenote_cell_overhead_seconds_bucket" + RATE + ")))",
        "{q}",
        "s",
    ),
    ("Kills by reason", "sum by (reason) (increase(cenote_kills_total[5m]))", "{{reason}}", "short"),
    (
        "Starts, 50 and 95 %",
        "histogram_quantile({q}, sum by (le, start) (rate(cenote_runtime_start_seconds_bucket" + RATE + ")))",
        "{{start}} {q}",
        "s",
    ),
    (
        "Forks, 50 and 95 %",
        "histogram_quantile({q}, sum by (le) (rate(cenote_fork_seconds_bucket" + RATE + ")))",
        "{q}",
        "s",
    ),
    (
        "Rollbacks, 50 and 95 %",
        "histogram_quantile({q}, sum by (le) (rate(cenote_rollback_seconds_bucket" + RATE + ")))",
        "{q}",
        "s",
    ),
    ("Forks", f"sum(rate(cenote_forks_total{RATE}))", "branches", "ops"),
    ("Rollbacks", f"sum(rate(cenote_rollbacks_total{RATE}))", "rollbacks", "ops"),
    ("Steps run again", f"sum(rate(cenote_steps_reexecuted_total{RATE}))", "run again", "ops"),
    ("Steps reused", f"sum(rate(cenote_steps_reused_total{RATE}))", "reused", "ops"),
    ("Host calls by effect", f"sum by (effect) (rate(cenote_host_calls_total{RATE}))", "{{effect}}", "ops"),
    (
        "Egress by verdict",
        f"sum by (verdict) (rate(cenote_egress_requests_total{RATE}))",
        "{{verdict}}",
        "ops",
    ),
    ("Egress", f"sum(rate(cenote_egress_bytes_total{RATE}))", "bytes", "Bps"),
    ("Calls by outcome", f"sum by (outcome) (rate(cenote_requests_total{RATE}))", "{{outcome}}", "ops"),
    (
        "Refusals by quota",
        "sum by (quota) (increase(cenote_quota_refusals_total[5m]))",
        "{{quota}}",
        "short",
    ),
    ("Clients", "cenote_clients", "clients", "short"),
    ("Tokens of models", f"sum by (spender) (rate(cenote_tokens_total{RATE}))", "{{spender}}", "ops"),
    (
        "Dollars for models, per hour",
        "sum by (spender) (increase(cenote_cost_dollars_total[1h]))",
        "{{spender}}",
        "currencyUSD",
    ),
    ("Tasks of jobs", "sum by (state) (cenote_job_tasks)", "{{state}}", "short"),
    ("Queues", "cenote_queue_depth", "{{queue}}", "short"),
    ("Runtimes by machine", "cenote_node_runtimes", "{{node}}", "short"),
    ("Shared values", "cenote_node_references", "{{node}}", "short"),
    ("Size of shared values", "cenote_node_reference_bytes", "{{node}}", "bytes"),
    ("State on disk", "cenote_state_bytes", "{{part}}", "bytes"),
    ("Free on that disk", "cenote_state_free_bytes", "free", "bytes"),
    ("Deeds that are not on record", "increase(cenote_unrecorded_deeds_total[1h])", "deeds", "short"),
    ("Cells by tenant", f"sum by (tenant) (rate(cenote_tenant_cells_total{RATE}))", "{{tenant}}", "ops"),
    (
        "Processors by tenant",
        f"sum by (tenant) (rate(cenote_tenant_cpu_seconds_total{RATE}))",
        "{{tenant}}",
        "short",
    ),
    ("Versions", "cenote_build_info", "{{version}}", "short"),
)
"""Titles, queries, legends and units. A query with `{q}` is run for two quantiles."""


def fresh_page(text: str) -> str:
    return PLACE.sub(lambda place: f"{place[1]}{table(TABLES[place[2]])}{place[3]}", text)


def table(metrics: tuple[Metric, ...]) -> str:
    rows = ["| metric | kind | labels | what it is |", "|---|---|---|---|"]
    for metric in metrics:
        labels = "; ".join(
            f"`{name}`" + (f": {', '.join(values)}" if values else "")
            for name, values in metric.labels.items()
        )
        rows.append(f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(rows) + "\n"


def dashboard() -> str:
    panels = [_panel(number, *panel) for number, panel in enumerate(PANELS)]
    source = {
        "name": "source",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }
    board = {
        "title": "Cenote",
        "uid": "cenote",
        "tags": ["cenote"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }
    return json.dumps(board, indent=1) + "\n"


def _panel(number: int, title: str, query: str, legend: str, unit: str) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    quantiles = ("0.5", "0.95") if "{q}" in query else ("",)
    return {
        "id": number + 1,
        "title": title,
        "type": "timeseries",
        "datasource": source,
        "gridPos": {"x": number % 3 * 8, "y": number // 3 * 8, "w": 8, "h": 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": source,
                "expr": query.replace("{q}", quantile),
                "legendFormat": legend.replace("{q}", quantile),
            }
            for place, quantile in enumerate(quantiles)
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    page = PAGE.read_text(encoding="utf-8")
    wanted = {PAGE: fresh_page(page), DASHBOARD: dashboard()}
    stale = [
        path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if check and stale:
        names = " and ".join(path.relative_to(ROOT).as_posix() for path in stale)
        print(f"{names} differ from the table of metrics: run python scripts/monitoring.py")
        return 1
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
