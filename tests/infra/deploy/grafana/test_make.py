"""The dashboards as they are stored, and what they ask for."""

import json
import re
from pathlib import Path

import pytest

from siltlog.infra.deploy.grafana import make
from siltlog.infra.deploy.grafana.make import DASHBOARDS, text
from siltlog.infra.metrics.catalogue import CATALOGUE

STORED = Path(make.__file__).parent


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_stored_dashboards_are_made_of_the_code(name: str) -> None:
    again = "make them again: python -m siltlog.infra.deploy.grafana.make"
    assert (STORED / f"{name}.json").read_text("utf-8") == text(DASHBOARDS[name]), again


def test_every_metric_is_on_a_dashboard_and_every_expression_asks_for_one() -> None:
    asked = set()
    for dashboard in DASHBOARDS.values():
        for panel in dashboard.panels:
            for expression, _ in panel.series:
                found = set(re.findall(r"\bsilt_\w+?(?=_bucket\b|_count\b|\W)", expression))
                assert found or "process_" in expression, expression
                asked |= found
    known = {metric.name for metric in CATALOGUE}
    assert asked <= known
    seldom = {
        "silt_build_info",
        "silt_draining",
        "silt_topics",
        "silt_producers",
        "silt_idempotency_keys",
        "silt_producer_state_bytes",
        "silt_producers_forgotten_total",
        "silt_flushed_files_total",
        "silt_flush_seconds",
        "silt_unflushed_bytes",
        "silt_burst_seconds_left",
        "silt_object_stall_seconds",
        "silt_tls_not_after_timestamp_seconds",
        "silt_denied_total",
        "silt_rate_limited_total",
        "silt_audit_failures_total",
        "silt_reloads_total",
        "silt_group_lags_left_out",
        "silt_live_snapshots_total",
        "silt_live_encoded_total",
        "silt_live_missed_total",
    }
    assert known - asked <= seldom


def test_panels_lie_beside_each_other_and_not_on_each_other() -> None:
    for dashboard in DASHBOARDS.values():
        document = json.loads(text(dashboard))
        taken = set()
        for panel in document["panels"]:
            at = panel["gridPos"]
            cells = {(x, at["y"]) for x in range(at["x"], at["x"] + at["w"])}
            assert not cells & taken
            assert max(x for x, _ in cells) < 24
            taken |= cells
