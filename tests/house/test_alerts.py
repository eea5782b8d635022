"""The alerts: each goes off when it should, stays quiet when it should, and has its runbook."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from siltlog.infra.metrics.catalogue import CATALOGUE

REPOSITORY = Path(__file__).parents[2]
RULES = REPOSITORY / "infra" / "deploy" / "prometheus" / "alerts.yml"
RUNBOOKS = REPOSITORY / "docs" / "runbooks.md"
_HEADINGS = ("What it means", "Look", "Mend")
promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: apt-get install prometheus"
)


class Case(NamedTuple):
    """Series, a value a minute in promtool's notation, and whether the alert fires at a minute."""

    series: dict[str, str]
    minute: int
    fires: bool


I = '{instance="a"}'  # noqa: E741
BOTH: dict[str, tuple[Case, Case]] = {
    "SiltDown": (
        Case({'up{job="siltlog",instance="a"}': "1 0x10"}, 5, True),
        Case({'up{job="siltlog",instance="a"}': "1x10", 'up{job="other",instance="b"}': "0x10"}, 5, False),
    ),
    "SiltNotReady": (
        Case({f"silt_ready{I}": "0x10"}, 5, True),
        Case({f"silt_ready{I}": "0 1x10"}, 5, False),
    ),
    "SiltWalFilling": (
        Case({f"silt_wal_used_bytes{I}": "80x20", f"silt_wal_bytes_max{I}": "100x20"}, 10, True),
        Case({f"silt_wal_used_bytes{I}": "60x20", f"silt_wal_bytes_max{I}": "100x20"}, 10, False),
    ),
    "SiltDiskFilling": (
        Case({f"silt_disk_free_bytes{I}": "10000-100x90"}, 85, True),
        Case({f"silt_disk_free_bytes{I}": "10000-1x90"}, 85, False),
    ),
    "SiltTopicNotFlushed": (
        Case({'silt_flush_failures_total{instance="a",topic="t"}': "0+1x20"}, 15, True),
        Case({'silt_flush_failures_total{instance="a",topic="t"}': "0x5 1x15"}, 15, False),
    ),
    "SiltTableStale": (
        Case({'silt_table_lag_seconds{instance="a",topic="t"}': "0+60x20"}, 15, True),
        Case({'silt_table_lag_seconds{instance="a",topic="t"}': "30x20"}, 15, False),
    ),
    "SiltSlowSync": (
        Case(
            {
                'silt_wal_commit_seconds_bucket{instance="a",le="0.05"}': "0+10x30",
                'silt_wal_commit_seconds_bucket{instance="a",le="0.1"}': "0+100x30",
                'silt_wal_commit_seconds_bucket{instance="a",le="+Inf"}': "0+100x30",
            },
            25,
            True,
        ),
        Case(
            {
                'silt_wal_commit_seconds_bucket{instance="a",le="0.05"}': "0+100x30",
                'silt_wal_commit_seconds_bucket{instance="a",le="0.1"}': "0+100x30",
                'silt_wal_commit_seconds_bucket{instance="a",le="+Inf"}': "0+100x30",
            },
            25,
            False,
        ),
    ),
    "SiltGroupBehind": (
        Case(
            {
                'silt_group_lag_seconds{group="g",topic="t",partition="0"}': "600x60",
                'silt_group_lag_records{group="g",topic="t",partition="0"}': "0+10x60",
            },
            50,
            True,
        ),
        # It is behind, and catches up.
        Case(
            {
                'silt_group_lag_seconds{group="g",topic="t",partition="0"}': "600x60",
                'silt_group_lag_records{group="g",topic="t",partition="0"}': "10000-10x60",
            },
            50,
            False,
        ),
    ),
    "SiltErrors": (
        Case(
            {
                'silt_http_replies_total{instance="a",operation="publish",status="200"}': "0+90x20",
                'silt_http_replies_total{instance="a",operation="publish",status="503"}': "0+10x20",
            },
            15,
            True,
        ),
        Case(
            {
                'silt_http_replies_total{instance="a",operation="publish",status="200"}': "0+999x20",
                'silt_http_replies_total{instance="a",operation="publish",status="404"}': "0+500x20",
                'silt_http_replies_total{instance="a",operation="publish",status="503"}': "0+1x20",
            },
            15,
            False,
        ),
    ),
    "SiltUpkeepStale": (
        Case({'silt_job_last_success_timestamp_seconds{instance="a",name="retain"}': "0x200"}, 180, True),
        Case(
            {
                'silt_job_last_success_timestamp_seconds{instance="a",name="retain"}': "0+60x200",
                'silt_job_last_success_timestamp_seconds{instance="a",name="compact"}': "0x200",
                'silt_table_live_files{instance="a",topic="t"}': "4000x200",
            },
            180,
            False,
        ),
    ),
    "SiltDeadLetters": (
        Case({'silt_dead_letters_total{instance="a",topic="t"}': "_x30 1x10"}, 35, True),
        Case({'silt_dead_letters_total{instance="a",topic="t"}': "7x60"}, 50, False),
    ),
    "SiltCredentials": (
        Case({f"silt_tls_not_after_timestamp_seconds{I}": "100000x30"}, 20, True),
        Case(
            {
                f"silt_tls_not_after_timestamp_seconds{I}": "9000000x30",
                'silt_denied_total{instance="a",reason="forbidden"}': "0+10x30",
            },
            20,
            False,
        ),
    ),
    "SiltNoOwner": (
        Case({f"silt_topics_waiting{I}": "2x10"}, 5, True),
        Case({f"silt_topics_waiting{I}": "0x10"}, 5, False),
    ),
    "SiltStoreFailing": (
        Case({'silt_store_errors_total{instance="a",request="head"}': "0+12x20"}, 15, True),
        Case({'silt_store_errors_total{instance="a",request="head"}': "0+1x20"}, 15, False),
    ),
    "SiltRedisDown": (
        Case({f"silt_redis_up{I}": "0x10"}, 5, True),
        Case({f"silt_redis_up{I}": "1x10"}, 5, False),
    ),
    "SiltAuditFailing": (
        Case({f"silt_audit_failures_total{I}": "0x5 1x10"}, 8, True),
        Case({f"silt_audit_failures_total{I}": "3x15"}, 12, False),
    ),
}


def rules() -> list[dict[str, object]]:
    [group] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return list(group["rules"])


def test_every_alert_has_a_case_and_a_runbook() -> None:
    assert [rule["alert"] for rule in rules()] == [*BOTH]
    sections = re.split(r"^## ", RUNBOOKS.read_text("utf-8"), flags=re.MULTILINE)[1:]
    told = {section.splitlines()[0]: section for section in sections}
    for rule in rules():
        name = str(rule["alert"])
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{name.lower()}"  # type: ignore[index]
        assert all(f"**{heading}**" in told[name] for heading in _HEADINGS), name


def test_every_metric_of_an_expression_is_one_of_the_catalogue() -> None:
    known = {metric.name for metric in CATALOGUE} | {
        f"{metric.name}_{part}" for metric in CATALOGUE if metric.buckets for part in ("bucket", "sum", "count")
    }
    for rule in rules():
        asked = set(re.findall(r"\bsilt_\w+", str(rule["expr"])))
        assert asked <= known, rule["alert"]


@pytest.mark.client
@promtool
def test_each_goes_off_when_it_should_and_is_quiet_when_it_should(tmp_path: Path) -> None:
    tests = []
    for name, cases in BOTH.items():
        for case in cases:
            # What labels and words an alert carries is not asked: promtool compares all of them, or none.
            tests.append(
                {
                    "interval": "1m",
                    "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
                    "promql_expr_test": [
                        {
                            "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                            "eval_time": f"{case.minute}m",
                            "exp_samples": [{"labels": "{}", "value": 1}] if case.fires else [],
                        }
                    ],
                }
            )
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(document))
    ran = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "tests.yml"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.client
@promtool
@pytest.mark.parametrize(("what", "file"), [("rules", "alerts.yml"), ("config", "prometheus.yml")])
def test_promtool_takes_the_files(what: str, file: str) -> None:
    ran = subprocess.run(
        ["promtool", "check", what, RULES.with_name(file)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_chart_has_the_same_rules() -> None:
    chart = REPOSITORY / "infra" / "deploy" / "helm" / "siltlog" / "files" / "alerts.yml"
    assert chart.read_text("utf-8") == RULES.read_text("utf-8")
