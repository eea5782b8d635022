"""`GET /v1/metrics/history` of real servers."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from access_rig import secured_server
from http_rig import Http

from siltlog.infra.errors import Refused
from siltlog.infra.settings.settings import ServerSettings
from siltlog.server.history.history import Past
from siltlog.server.history.http import NAMES, VALUES_MAX, _told
from siltlog.server.history.sampling import Series
from siltlog.testing import running_server

PLACE = "/v1/metrics/history"
SOON_SECONDS = 60.0


@pytest.fixture(scope="module")
def http() -> Iterator[Http]:
    with running_server(flush_ms=100) as server:
        made = Http(server.url)
        made.create("orders")
        end = time.monotonic() + SOON_SECONDS
        while not any(one["name"] == "silt_records_total" for one in history(made)["series"]):
            made.publish("orders", {"value": "v"})
            assert time.monotonic() < end
            time.sleep(0.2)
        yield made


def history(http: Http, more: str = "", series: str = ",".join(NAMES)) -> dict[str, Any]:
    reply = http.get(f"{PLACE}?series={series}{more}")
    assert reply.status == 200, reply
    found: dict[str, Any] = reply.json
    return found


@pytest.mark.slow
def test_what_was_published_is_seen_by_topic_and_in_all(http: Http) -> None:
    found = history(http, series="silt_records_total,silt_ack_seconds")
    assert found["step_ms"] == 10_000
    series = {(one["name"], *one["labels"].values()): one["values"] for one in found["series"]}
    assert all(len(values) == len(found["times"]) for values in series.values())
    rates = [value for value in series["silt_records_total", "orders"] if value is not None]
    # Nothing is published any more: a sample that came since tells of that.
    assert 0 < max(rates) < 100
    assert series["silt_records_total",][-3:] == series["silt_records_total", "orders"][-3:]
    assert {("silt_ack_seconds", "0.5"), ("silt_ack_seconds", "0.99")} <= series.keys()
    only = history(http, "&topic=orders", "silt_records_total")
    assert [one["labels"] for one in only["series"]] == [{"topic": "orders"}]
    assert history(http, "&group=none")["series"] == []


def test_requests_to_the_object_store_have_a_past(http: Http) -> None:
    found = history(http, series="silt_store_seconds,silt_store_errors_total")
    series = {(one["name"], *one["labels"].values()): one["values"] for one in found["series"]}
    for quantile in ("0.5", "0.99"):
        assert max(value for value in series["silt_store_seconds", quantile] if value is not None) > 0
    assert [value for value in series["silt_store_errors_total",] if value is not None]


def test_times_and_steps_are_as_asked(http: Http) -> None:
    now = datetime.now(UTC)
    begin = (now - timedelta(minutes=10)).isoformat().replace("+00:00", "Z")
    end = (now - timedelta(minutes=5)).isoformat().replace("+00:00", "Z")
    found = history(http, f"&from={begin}&to={end}&step_ms=30000", "silt_ready")
    assert found["step_ms"] == 30_000
    assert 10 <= len(found["times"]) <= 12
    assert all(begin[:15] <= at <= end for at in found["times"])
    assert history(http, "&step_ms=25000", "silt_ready")["step_ms"] == 30_000, "a whole number of what is kept"
    for days, step_ms in ((0.95, 240_000), (9, 3_600_000), (29, 7_200_000), (90, 7_200_000)):
        found = history(http, f"&from={(now - timedelta(days=days)).isoformat()[:19]}Z", "silt_ready")
        assert found["step_ms"] == step_ms
        assert len(found["times"]) <= 362, "of 30 days at most"


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("", 400, "it names no metric"),
        ("series=", 400, "it names no metric"),
        ("series=silt_records", 400, "'silt_records' has no history"),
        ("series=silt_ready&from=2100-01-01T00:00:00Z", 422, "from is after to"),
        ("series=silt_ready&from=yesterday", 422, "from"),
        ("series=silt_ready&step_ms=0", 400, "step_ms"),
        ("series=silt_ready&steps=1", 400, "there is no parameter 'steps'"),
        ("series=silt_ready&nodes=none", 400, "nodes must be one of all, this"),
        ("series=silt_ready&by=topic", 400, "by must be one of node"),
    ],
)
def test_what_cannot_be_told_is_refused_with_a_reason(http: Http, query: str, status: int, said: str) -> None:
    reply = http.get(f"{PLACE}?{query}")
    assert reply.status == status
    assert said in reply.json["detail"]


def test_more_values_than_a_reply_should_have_are_refused() -> None:
    def told(series: int, steps: int) -> int:
        some = [Series("silt_records_total", "topic", f"t{number}") for number in range(series)]
        return len(_told(Past(0, 10, some, np.zeros((series, steps), np.float32))))

    with pytest.raises(Refused, match="ask for fewer series"):
        told(VALUES_MAX // 100 + 1, 100)
    assert told(VALUES_MAX // 100, 100) == VALUES_MAX // 100


@pytest.mark.slow
def test_who_may_see_a_topic_sees_its_series_and_no_other() -> None:
    with secured_server(flush_ms=100) as server:
        for topic in ("mine-1", "other-1"):
            server.admin.create(topic)
        _, mine = server.key("mine", ("consumer", "mine-"))
        _, nobody = server.key("nobody")
        end = time.monotonic() + SOON_SECONDS
        topics = [{"topic": "mine-1"}, {"topic": "other-1"}]
        while of(server.admin)[-2:] != topics:
            for topic in ("mine-1", "other-1"):
                server.admin.publish(topic, {"value": "v"})
            assert time.monotonic() < end
            time.sleep(0.2)
        assert of(server.admin)[0] == {}, "of the whole node"
        assert of(mine) == [{"topic": "mine-1"}]
        assert of(nobody) == []
        whole, part = history(server.admin, series="silt_ready"), history(mine, series="silt_ready")
        assert (whole["nodes"], whole["complete"], whole["silent"]) == ([whole["node"]], True, [])
        assert (part["nodes"], part["complete"]) == ([], True)
        assert mine.get(f"{PLACE}?series=silt_ready&by=node").status == 403
        [by_node] = history(server.admin, "&by=node", "silt_ready")["series"]
        assert by_node["labels"] == {"node": whole["node"]}
        assert server.nobody.get(f"{PLACE}?series=silt_ready").status == 401


def of(http: Http) -> list[dict[str, str]]:
    return [one["labels"] for one in history(http, series="silt_records_total")["series"]]


def test_a_server_records_it_unless_it_is_one_of_a_test(http: Http) -> None:
    assert ServerSettings().metrics_history == "topic"
    settings = http.get("/v1/config").json["settings"]
    assert settings["metrics_history"]["value"] == "ring"


def test_a_server_may_keep_none() -> None:
    with running_server(metrics_history="off") as server:
        reply = Http(server.url).get(f"{PLACE}?series=silt_ready")
        assert (reply.status, reply.json["error_code"]) == (404, "not_found")
        assert "SILT_METRICS_HISTORY=off" in reply.json["detail"]
