"""Write the Grafana dashboard of deploy/: `python -m scripts.grafana`. A test runs this again and compares."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "tocsin.json"
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
WHERE: Final = 'job=~"$job",instance=~"$instance"'
WIDE: Final = 24
HEIGHT: Final = 8


@dataclass(frozen=True)
class Panel:
    """One panel: its title, unit, and queries with their legends. `@` in a query stands for the labels chosen above."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    width: int = 8
    said: str = ""
    stacked: bool = False


def _quantiles(metric: str, *shares: float, by: str = "le", legend: str = "") -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"histogram_quantile({share}, sum by ({by}) (rate({metric}_bucket{{@}}[$__rate_interval])))",
         f"{share:.0%}{legend}")
        for share in shares
    )  # fmt: skip


ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Now": (
        Panel("Health", "none", (('max by (level) (tocsin_health{@}) == 1', "{{level}}"),), "stat", 4,
              "Red or amber: the table beside says why."),
        Panel("Why not green", "none", (("tocsin_health_reason{@} == 1", "{{code}}"),), "stat", 8),
        Panel("Oldest due", "s", (("max by (kind) (tocsin_oldest_due_seconds{@})", "{{kind}}"),), "stat", 4,
              "For how long the first due job has waited."),
        Panel("Due now", "short", (("sum(tocsin_jobs_due{@})", "due"),), "stat", 4),
        Panel("Dead", "short", (('sum(tocsin_jobs{state="dead",@})', "dead"),), "stat", 4),
    ),
    "Jobs": (
        Panel("Accepted and ended", "ops", (
            ("sum(rate(tocsin_jobs_accepted_total{@}[$__rate_interval]))", "accepted"),
            ("sum by (how) (rate(tocsin_jobs_ended_total{@}[$__rate_interval]))", "{{how}}"),
        )),
        Panel("Jobs that are there", "short", (("sum by (state) (tocsin_jobs{@})", "{{state}}"),), stacked=True),
        Panel("Died, by reason", "short", (
            ("sum by (reason) (increase(tocsin_jobs_died_total{@}[$__rate_interval]))", "{{reason}}"),
        ), stacked=True),
        Panel("Waiting, by queue", "short", (("sum by (queue) (tocsin_queue_waiting_jobs{@})", "{{queue}}"),)),
        Panel("Waiting, by pool", "short", (("sum by (pool) (tocsin_pool_waiting_jobs{@})", "{{pool}}"),)),
        Panel("Waiting, by scheduler", "short", (
            ('sum by (scheduler) (tocsin_scheduler_jobs{state="waiting",@})', "{{scheduler}}"),
        )),
    ),
    "Attempts": (
        Panel("Lateness", "s", _quantiles("tocsin_attempt_lateness_seconds", 0.5, 0.95, 0.99),
              said="From when an attempt was due to when it started."),
        Panel("Duration", "s", _quantiles("tocsin_attempt_duration_seconds", 0.5, 0.95, by="le, kind",
                                          legend=" {{kind}}")),
        Panel("Ended, by outcome", "ops", (
            ("sum by (outcome) (rate(tocsin_attempts_ended_total{@}[$__rate_interval]))", "{{outcome}}"),
        ), stacked=True),
        Panel("In flight", "short", (
            ("sum(tocsin_permits_in_use{@})", "callbacks"), ("sum(tocsin_permits{@})", "most"),
        )),
        Panel("Leases that expired", "short", (
            ("sum by (kind) (increase(tocsin_leases_expired_total{@}[$__rate_interval]))", "{{kind}}"),
        )),
        Panel("Workers", "short", (
            ("sum by (status) (tocsin_workers{@})", "{{status}}"),
            ("sum(tocsin_claims_waiting{@})", "claims that wait"),
        )),
    ),
    "Process and store": (
        Panel("Commits take", "s", _quantiles("tocsin_store_commit_seconds", 0.5, 0.95)),
        Panel("Transactions and batches", "ops", (
            ("sum(rate(tocsin_store_transactions_total{@}[$__rate_interval]))", "transactions"),
            ("sum(rate(tocsin_store_batches_total{@}[$__rate_interval]))", "batches"),
        )),
        Panel("Log in front of the store", "bytes", (("sum(tocsin_store_wal_bytes{@})", "log"),)),
        Panel("Event loop is late", "s", _quantiles("tocsin_loop_lag_seconds", 0.5, 0.95)),
        Panel("Requests", "reqps", (
            ("sum by (route, status) (rate(tocsin_http_requests_total{@}[$__rate_interval]))", "{{status}} {{route}}"),
        )),
        Panel("Memory and descriptors", "bytes", (
            ("process_resident_memory_bytes{@}", "memory"), ("process_open_fds{@}", "descriptors"),
        )),
    ),
}  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Return the whole dashboard."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append({
            "id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
            "gridPos": {"h": 1, "w": WIDE, "x": 0, "y": y},
        })  # fmt: skip
        y, x = y + 1, 0
        for one in row:
            if x + one.width > WIDE:
                y, x = y + HEIGHT, 0
            panels.append(_panel(one, len(panels) + 1, x, y))
            x += one.width
        y += HEIGHT
    return {
        "title": "tocsin", "uid": "tocsin", "tags": ["tocsin"], "schemaVersion": 39, "version": 1, "editable": True,
        "graphTooltip": 1, "refresh": "30s", "time": {"from": "now-3h", "to": "now"}, "timezone": "",
        "annotations": {"list": []}, "links": [],
        "templating": {"list": [_source(), *map(_label, ("job", "instance"))]},
        "panels": panels,
    }  # fmt: skip


def _panel(one: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    stacking = {"mode": "normal" if one.stacked else "none", "group": "A"}
    custom = {"custom": {"fillOpacity": 10, "lineWidth": 1, "showPoints": "never", "stacking": stacking}}
    options: dict[str, Any] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    if one.kind == "stat":
        custom = {}
        by_name = one.unit == "none"
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "name" if by_name else "auto"}
    return {
        "id": number, "type": one.kind, "title": one.title, "description": one.said, "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": one.width, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": one.unit, **custom}, "overrides": []}, "options": options,
        "targets": [
            {"refId": chr(65 + n), "expr": query.replace("@", WHERE), "legendFormat": legend, "datasource": SOURCE}
            for n, (query, legend) in enumerate(one.queries)
        ],
    }  # fmt: skip


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus", "hide": 0}


def _label(name: str) -> dict[str, Any]:
    query = f"label_values(tocsin_build_info, {name})"
    return {
        "name": name, "label": name.capitalize(), "type": "query", "datasource": SOURCE, "definition": query,
        "query": {"query": query, "refId": name}, "includeAll": True, "multi": True, "refresh": 2, "hide": 0, "sort": 1,
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
