"""Alerts and dashboard of deploy/: Prometheus' own checker accepts them, and they ask for metrics that there are."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from scripts import grafana
from tests.examples.conftest import missing
from tests.http.http_client import open_http_client
from tocsin.actors.http.metrics.families import FAMILIES

HERE: Final = Path(__file__).parent
DEPLOY: Final = HERE.parents[1] / "deploy"
RULES: Final = DEPLOY / "prometheus" / "tocsin.rules.yml"
ALERTS: Final = [one for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for one in group["rules"]]
METRIC: Final = re.compile(r"\b(?:tocsin|process)_\w+")


def promtool(*words: str | Path, said: str | None = None) -> str:
    """Run Prometheus' checker. Fails, or skips where CI is not set, if there is none."""
    if not shutil.which("promtool"):
        missing("promtool is not installed")
    done = subprocess.run(["promtool", *map(str, words)], input=said, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def scraped() -> str:
    async def run() -> str:
        async with open_http_client() as http:
            await http.schedule(id="a", delayMs=0)
            await http.until("a", None)
            await http.schedule(id="b", pool="gpu")
            text: str = (await http.get("/metrics")).text
            return text

    return asyncio.run(run())


def sampled(text: str) -> dict[str, set[str]]:
    """Names of samples, with the names of their labels."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_the_alerts_are_accepted_and_ring_when_they_should(tmp_path: Path) -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", RULES)
    tests = tmp_path / "tests.yml"
    tests.write_text((HERE / "tocsin.rules.test.yml").read_text("utf-8").replace("RULES", str(RULES)), "utf-8")
    assert "SUCCESS" in promtool("test", "rules", tests)


def test_what_metrics_says_is_what_the_checker_wants(scraped: str) -> None:
    assert promtool("check", "metrics", said=scraped) == ""


def test_every_alert_asks_for_metrics_that_there_are(scraped: str) -> None:
    names = sampled(scraped).keys() | {one.shown for one in FAMILIES if one.of_cluster}  # this host is alone
    asked = {name for one in ALERTS for name in METRIC.findall(one["expr"])}
    assert asked and asked <= names, asked - names
    for one in ALERTS:
        assert one["labels"]["severity"] in ("page", "ticket") and {"summary", "description"} == set(one["annotations"])


def test_alerts_name_reasons_that_health_has() -> None:
    codes = {code for one in ALERTS for code in re.findall(r'code=~?"([^"]+)"', one["expr"])}
    assert codes == {"STORE_.*"}


def queries(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_every_query_of_the_dashboard_asks_for_metrics_and_labels_that_there_are(scraped: str) -> None:
    names, dashboard = sampled(scraped), json.loads(grafana.FILE.read_text("utf-8"))
    told = queries(dashboard)
    asked = {name for query in told for name in METRIC.findall(query)}
    assert asked <= names.keys(), asked - names.keys()
    labels = {"job", "instance", "le", *(label for family in FAMILIES for label in family.labels)}
    for query in told:
        by = {label.strip() for some in re.findall(r"\bby \(([^)]+)\)", query) for label in some.split(",")}
        chosen = set(re.findall(r'(\w+)=~?"', query))
        assert by | chosen <= labels, query
        assert all(by & names[name] or not by - {"le"} for name in METRIC.findall(query)), query
        assert 'job=~"$job",instance=~"$instance"' in query


def test_every_query_of_the_dashboard_is_one_to_the_checker(tmp_path: Path) -> None:
    told = queries(json.loads(grafana.FILE.read_text("utf-8")))
    rules = [{"record": f"x:{n}", "expr": one.replace("$__rate_interval", "5m")} for n, one in enumerate(told)]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), "utf-8")
    assert f"{len(told)} rules found" in promtool("check", "rules", tmp_path / "queries.yml")


def test_the_dashboard_is_as_grafana_wants_it_and_as_its_script_writes_it() -> None:
    text = grafana.FILE.read_text("utf-8")
    assert text == grafana.text(), "run python -m scripts.grafana"
    dashboard = json.loads(text)
    assert dashboard["uid"] and dashboard["title"] and dashboard["schemaVersion"] >= 36
    assert {one["name"] for one in dashboard["templating"]["list"]} == {"source", "job", "instance"}
    panels = dashboard["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert set(place) == {"x", "y", "w", "h"} and place["x"] >= 0 and place["x"] + place["w"] <= grafana.WIDE
        if panel["type"] != "row":
            assert panel["type"] in ("stat", "timeseries") and panel["targets"] and panel["title"]
            assert len({one["refId"] for one in panel["targets"]}) == len(panel["targets"])
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
