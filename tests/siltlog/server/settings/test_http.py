"""`/v1/config` and SIGHUP of real servers: what is told, what is refused, what outlives the process."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_rig import Secured, secured_server
from http_rig import NO_REDIS, Http, Reply

from siltlog.infra import names
from siltlog.infra.metrics import catalogue
from siltlog.infra.settings.changed import HOT, changed_path
from siltlog.infra.settings.settings import ServerSettings
from siltlog.server.settings.configuration import CHANGES_A_MINUTE_MAX
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """Few changes are made to it: there are only so many a minute. It has a secret, and a setting from outside."""
    with running_server(redis_url="redis://127.0.0.1:1/0", redis_password="hunter22-hunter22", drain_ms=700) as server:
        yield server


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Http:
    return Http(server.url)


def test_each_setting_says_what_it_is(http: Http) -> None:
    told = http.get("/v1/config").json["settings"]
    assert [name for name, each in told.items() if not each["about"].endswith((".", ":", ")"))] == []
    units = {
        name: told[name]["unit"] for name in ("flush_ms", "session_timeout_ms_max", "wal_bytes_max", "connections_max")
    }
    assert units == {"flush_ms": "ms", "session_timeout_ms_max": "ms", "wal_bytes_max": "bytes", "connections_max": ""}
    assert told["log_level"]["choices"] == ["debug", "info", "warning", "error"]
    assert (told["drain_ms"]["default"], told["drain_ms"]["value"]) == (20_000, 700)
    assert told["redis_password"]["default"] == ""


def change(http: Http, headers: dict[str, str] | None = None, **changes: Any) -> Reply:
    return http.json("PATCH", "/v1/config", {"changes": changes}, **(headers or {}))


def setting(http: Http, name: str) -> dict[str, Any]:
    found: dict[str, Any] = http.get("/v1/config").json["settings"][name]
    return found


def hang_up(server: ServerProcess, outcome: str) -> str:
    """Has files read again, and waits for that outcome; what the log says of it."""
    line = f'{catalogue.RELOADS.name}{{outcome="{outcome}"}} '

    def times() -> float:
        text = Http(server.url).get("/metrics").body.decode()
        return float(next(found for found in text.splitlines() if found.startswith(line)).removeprefix(line))

    before, seen = times(), len(server.log_path.read_text())
    os.kill(server.pid, signal.SIGHUP)
    end = time.monotonic() + 60
    while times() == before:
        assert time.monotonic() < end, f"no {outcome} reload"
        time.sleep(0.05)
    return server.log_path.read_text()[seen:]


def test_every_setting_is_told_and_no_secret(server: ServerProcess, http: Http) -> None:
    reply = http.get("/v1/config")
    settings = reply.json["settings"]
    assert list(settings) == list(ServerSettings.model_fields)
    assert {name for name, one in settings.items() if not one["restart"]} == HOT
    assert b"hunter22" not in reply.body and settings["redis_password"]["value"] == "***"
    assert settings["data_dir"]["value"] == str(server.data_dir)
    assert (settings["drain_ms"]["origin"], settings["drain_ms"]["place"]) == ("environment", "SILT_DRAIN_MS")
    assert (settings["flush_ms"]["origin"], settings["flush_ms"]["place"]) == ("default", "")
    assert reply.headers["etag"] == f'"{reply.json["version"]}"'


@pytest.mark.rule("Z2")
@pytest.mark.parametrize(
    ("changes", "status", "code", "said"),
    [
        ({"drain_ms": 1}, 409, "overridden", "SILT_DRAIN_MS sets drain_ms"),
        ({"port": 1}, 409, "needs_restart", "write it in siltlog.toml, or set SILT_PORT"),
        ({"wal_bytes_max": "100MiB"}, 409, "needs_restart", "less than 4 segments"),
        (
            {"wal_segment_bytes": "2MiB"},
            409,
            "needs_restart",
            "write it in siltlog.toml, or set SILT_WAL_SEGMENT_BYTES",
        ),
        ({"flush_sm": 1}, 422, "invalid_request", "did you mean 'flush_ms'?"),
        ({}, 422, "invalid_request", "changes names no setting"),
        ({"flush_ms": 0}, 422, "invalid_config", "flush_ms"),
        ({"flush_ms": "soon"}, 422, "invalid_config", "flush_ms"),
        ({"hosts": "not a host"}, 422, "invalid_config", "hosts"),
        ({"schedule_retain": "never"}, 422, "invalid_config", "it is not a cron expression"),
        ({"log_level": 3}, 422, "invalid_config", "log_level"),
        ({"flush_ms": 5, "record_bytes_max": 0}, 422, "invalid_config", "record_bytes_max"),
        ({"flush_ms": True}, 422, "invalid_request", "Expected"),
    ],
)
def test_what_may_not_be_changes_nothing(
    http: Http, changes: dict[str, Any], status: int, code: str, said: str
) -> None:
    before = http.get("/v1/config").json
    reply = change(http, **changes)
    assert (reply.status, reply.error_code) == (status, code)
    assert said in reply.json["detail"]
    assert http.get("/v1/config").json == before


@pytest.mark.rule("Z4")
def test_a_change_is_of_the_version_that_was_seen(http: Http) -> None:
    seen = http.get("/v1/config")
    assert change(http, {"If_Match": seen.headers["etag"]}, flush_ms="250ms").status == 200
    late = change(http, {"If_Match": seen.headers["etag"]}, flush_ms=300)
    assert (late.status, late.error_code) == (409, "config_changed")
    assert late.json["version"] == http.get("/v1/config").json["version"] != seen.json["version"]
    assert change(http, {"If_Match": '""'}, flush_ms=300).error_code == "invalid_parameter"


@pytest.mark.rule("Z3", "Z4")
def test_changes_are_kept_and_taken_back_and_few() -> None:
    with running_server(redis_url=NO_REDIS) as server:
        http = Http(server.url)
        assert change(http, flush_ms="250ms", hosts="log.example").status == 200
        told = setting(http, "flush_ms")
        assert (told["value"], told["origin"]) == (250, "changed")
        assert told["place"] == str(changed_path(server.data_dir))
        server.kill()
        server.start()
        http = Http(server.url)
        assert setting(http, "flush_ms") == told
        assert http.get("/v1/config", Host="log.example").status == 200
        http.create("flights")
        assert http.get("/v1/topics/flights").json["config"]["flush.ms"] == {"value": 250, "source": "server"}
        assert change(http, flush_ms=None).status == 200
        assert setting(http, "flush_ms")["origin"] == "default"
        assert http.get("/v1/topics/flights").json["config"]["flush.ms"]["source"] == "default"
        for number in range(1, CHANGES_A_MINUTE_MAX):
            assert change(http, connections_max=number + 100).status == 200
        refused = change(http, connections_max=1)
        assert (refused.status, refused.error_code) == (429, "rate_limited")
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert setting(http, "connections_max")["value"] == CHANGES_A_MINUTE_MAX + 99


@pytest.mark.rule("Z5")
def test_a_hangup_reads_the_files_again(server: ServerProcess, http: Http) -> None:
    path = changed_path(server.data_dir)
    path.write_text("record_bytes_max = 5000\n")
    said = hang_up(server, "applied")
    assert '"record_bytes_max":[8388608,5000]' in said
    assert http.get("/v1/cluster").json["limits"]["record_bytes"] == 5_000
    before = http.get("/v1/config").json
    for wrong in ("record_bytes_max = 0\n", "port = 7\n", "record_bytes_max ="):
        path.write_text(wrong)
        said = hang_up(server, "refused")
        assert "the settings are not read again" in said and names.SETTINGS_FILE in said
        assert http.get("/v1/config").json == before
    path.write_text("wal_bytes_max = '100MiB'\n")
    assert "wal_bytes_max" in hang_up(server, "applied").rpartition("need_restart")[2]
    assert (setting(http, "wal_bytes_max")["value"], setting(http, "wal_bytes_max")["waiting"]) == (1 << 32, True)
    assert http.get("/v1/cluster").json["limits"]["record_bytes"] == 8 << 20


def test_a_hangup_reads_what_takes_a_restart_and_says_so(tmp_path: Path) -> None:
    config = tmp_path / names.CONFIG_FILE
    config.write_text('zone = ""\nflush_ms = 400\n')
    with running_server(redis_url=NO_REDIS, config=config) as server:
        http = Http(server.url)
        assert setting(http, "flush_ms")["place"] == str(config)
        config.write_text('advertise_url = "http://log.example"\nflush_ms = 300\n')
        assert "advertise_url" in hang_up(server, "applied").rpartition("need_restart")[2]
        assert setting(http, "flush_ms")["value"] == 300
        told = setting(http, "advertise_url")
        assert (told["value"], told["origin"], told["waiting"]) == ("", "default", True)


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with secured_server() as secured:
        yield secured


@pytest.mark.rule("Z3")
def test_a_change_is_recorded_with_old_and_new_before_it_holds(secured: Secured) -> None:
    assert change(secured.admin, flush_ms=400).status == 200
    records = [record["value"] for record in secured.admin.read("_audit", query="values=text")]
    found = [record for record in map(json.loads, records) if record["operation"] == "changeConfig"]
    assert [record["outcome"] for record in found] == ["begun", "done"]
    assert found[0]["principal"] == "key:admin" and found[0]["resource"] == "config/node-0"
    assert json.loads(found[0]["detail"]) == {"flush_ms": [1000, 400]}
    refused = change(secured.admin, flush_ms=0)
    assert refused.status == 422
    assert len(secured.admin.read("_audit", query="values=text")) == len(records)


def test_operators_change_and_viewers_look(secured: Secured) -> None:
    _, viewer = secured.key("looks", ("viewer", ""))
    _, operator = secured.key("runs", ("operator", ""))
    assert viewer.get("/v1/config").status == 200
    assert change(viewer, flush_ms=1).error_code == "forbidden"
    assert change(operator, flush_ms=350).status == 200
    assert secured.nobody.get("/v1/config").status == 401
