"""`silt access` against a real server that asks who calls."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_rig import As, Secured, secured_server
from http_rig import NO_REDIS

from siltlog.cli.main import run
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def running() -> Iterator[Secured]:
    with secured_server() as found:
        yield found


@pytest.fixture(autouse=True)
def secured(running: Secured, monkeypatch: pytest.MonkeyPatch) -> Secured:
    monkeypatch.setenv("SILT_URL", running.server.url)
    monkeypatch.setenv("SILT_TOKEN", str(running.admin.token))
    return running


def said(capsys: Capture, *command: str, status: int = 0) -> Any:
    """What a command printed, as JSON."""
    assert run(["access", *command, "--output", "json"]) == status, capsys.readouterr().err
    return json.loads(capsys.readouterr().out or "null")


def test_a_key_from_its_making_to_its_end(capsys: Capture, secured: Secured) -> None:
    assert run(["access", "key", "create", "etl", "--role", "viewer", "--expires-in", "1h", "-o", "value"]) == 0
    token = capsys.readouterr().out.strip()
    etl = As(secured.server.url, token)
    assert etl.get("/v1/cluster").status == 200
    listed = {key["name"]: key for key in said(capsys, "key", "list")["keys"]}
    assert listed["etl"]["expires_at"] is not None
    assert listed["admin"]["expires_at"] is None
    assert said(capsys, "key", "create", "etl", status=1) is None
    rotated = said(capsys, "key", "rotate", listed["etl"]["id"], "--overlap", "0s")
    assert [As(secured.server.url, each).get("/v1/cluster").status for each in (token, rotated["key"])] == [401, 200]
    revoked = said(capsys, "key", "revoke", rotated["id"])
    assert revoked == {"id": rotated["id"], "revoked": True, "everywhere": True, "warnings": []}
    assert As(secured.server.url, rotated["key"]).get("/v1/cluster").status == 401
    assert run(["access", "key", "revoke", "absent"]) == 1
    assert "absent" in capsys.readouterr().err


def test_whoever_revokes_the_key_of_the_last_administrator_hears_of_it(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remedy = "silt access key create NAME --role admin"
    with secured_server(data_dir=str(tmp_path / "data")) as fresh:
        monkeypatch.setenv("SILT_URL", fresh.server.url)
        monkeypatch.setenv("SILT_TOKEN", str(fresh.admin.token))
        [first] = said(capsys, "key", "list")["keys"]
        second, _ = fresh.key("other", ("admin", ""))
        assert said(capsys, "key", "revoke", second)["warnings"] == []
        assert "nobody administers access" not in fresh.server.log_path.read_text()
        [warning] = said(capsys, "key", "revoke", first["id"])["warnings"]
        assert "no administrator is left" in warning and remedy in warning
        # What it says is so.
        monkeypatch.delenv("SILT_TOKEN")
        monkeypatch.setenv("SILT_URL", f"unix:{tmp_path}/data/silt.sock")
        made = said(capsys, "key", "create", "again", "--role", "admin")
        assert As(fresh.server.url, made["key"]).get("/v1/access").status == 200
        assert run(["access", "key", "revoke", made["id"]]) == 0
        assert "no administrator is left" in " ".join(capsys.readouterr().err.split())
        fresh.server.restart()
        assert "nobody administers access" in fresh.server.log_path.read_text()


def test_a_key_is_shown_once_with_a_word_about_that(capsys: Capture) -> None:
    assert run(["access", "key", "create", "shown"]) == 0
    told = capsys.readouterr()
    assert "silt_" in told.out
    assert "only time" in told.err
    assert run(["access", "show"]) == 0
    assert "silt_" not in capsys.readouterr().out


def test_roles_and_entries(capsys: Capture) -> None:
    role = said(capsys, "role", "give", "group:team", "consumer", "--prefix", "orders")
    assert (role["id"], role["role"]) == ("group-team.consumer.orders", "consumer")
    read = ("check", "user:ana", "read", "topic:orders-eu", "--group", "team")
    assert said(capsys, *read)["allowed"]
    denied = said(capsys, "deny", "*", "read", "--topic", "orders-eu")
    assert denied["id"] == "everybody.deny.topic.orders-eu.read"
    assert said(capsys, *read, status=3) == {"allowed": False, "because": f"entry {denied['id']} denies it"}
    assert said(capsys, "remove", denied["id"])["id"] == denied["id"]
    assert said(capsys, *read)["allowed"]
    said(capsys, "role", "take", role["id"])
    assert not said(capsys, *read, status=3)["allowed"]
    for rights in (("read",), ("write", "describe")):
        said(capsys, "grant", "key:x", *rights, "--topic", "a", "--prefix")
    shown = said(capsys, "show")["acls"]
    assert {"x.allow.topic.a-all.read", "x.allow.topic.a-all.describe-write"} <= set(shown)
    assert said(capsys, "check", "key:x", "write", "topic:abc")["allowed"]
    assert said(capsys, "role", "take", "admin.admin", status=1) is None


@pytest.mark.parametrize("of", [(), ("--topic", "a", "--cluster")])
def test_an_entry_is_of_one_thing(capsys: Capture, of: tuple[str, ...]) -> None:
    assert run(["access", "grant", "key:x", "read", *of]) == 2
    assert "one of --topic" in capsys.readouterr().err


def test_who_calls(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(capsys, "whoami")["principal"] == "key:admin"
    assert run(["access", "whoami"]) == 0
    assert "admin" in capsys.readouterr().out
    monkeypatch.delenv("SILT_TOKEN")
    assert run(["access", "whoami"]) == 1
    assert "Authorization" in capsys.readouterr().err


def test_the_first_key_is_made_with_no_server_and_only_once(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = str(tmp_path / "data")
    command = ["access", "bootstrap", "ops", "--data-dir", data]
    assert run([*command, "--output", "value"]) == 0
    token = capsys.readouterr().out.strip()
    assert run(command) == 1
    assert "there is an access document" in capsys.readouterr().err
    with running_server(data_dir=data, auth="on", redis_url=NO_REDIS) as server:
        whoami = As(server.url, token).get("/v1/access/whoami").json
        assert (whoami["principal"], whoami["roles"][0]["role"]) == ("key:ops", "admin")


def test_the_machines_own_user_makes_the_first_key_by_the_socket(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_server(data_dir=str(tmp_path / "d"), auth="on", redis_url=NO_REDIS) as server:
        monkeypatch.delenv("SILT_TOKEN")
        monkeypatch.setenv("SILT_URL", f"unix:{server.data_dir / 'silt.sock'}")
        assert said(capsys, "whoami")["principal"] == "local"
        token = said(capsys, "key", "create", "ops", "--role", "admin")["key"]
        assert As(server.url, token).get("/v1/access").status == 200
        assert As(server.url, None).get("/v1/access").status == 401
