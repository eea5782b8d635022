import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from credential_server import Authority, WallClock, serving

from siltlog.doctor.credentials import check_own_certificate, check_secrets, seconds_ahead, until
from siltlog.doctor.finding import Finding
from siltlog.doctor.server import check_server
from siltlog.infra.client.credentials.contexts import Context, Contexts, contexts_file, write_contexts
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.clock import SystemClock
from siltlog.infra.settings.settings import ServerSettings

URL = "https://silt.example"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def by_check(findings: list[Finding], check: str) -> list[Finding]:
    return [finding for finding in findings if finding.check == check]


def test_secrets_that_others_may_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServerSettings(data_dir=home)
    assert list(check_secrets(settings, URL, Credentials())) == []
    key = Authority(home).client_pair("a")[1]
    for path in (home / "token", home / "secret", key):
        path.write_text("silt_canary")
        path.chmod(0o600)
    monkeypatch.setenv("SILT_TOKEN_FILE", str(home / "token"))
    given = Credentials(cert=(home / "a.pem", key))
    assert list(check_secrets(settings, URL, given)) == []
    for path in (home / "token", home / "secret", key):
        path.chmod(0o644)
        [found] = check_secrets(settings, URL, given)
        assert (found.state, found.mend) == ("wrong", f"chmod 600 {path}")
        assert "every user of this machine may read it" in found.detail and "canary" not in found.detail
        path.chmod(0o600)


def test_keys_that_others_may_read(home: Path) -> None:
    certificate, key = Authority(home).client_pair("a")
    key.chmod(0o600)
    pairs = ({"tls_cert": certificate, "tls_key": key}, {"redis_cert": certificate, "redis_key": key})
    for given in pairs:
        texts: dict[str, Any] = {name: str(path) for name, path in given.items()}
        settings = ServerSettings(data_dir=home, redis_url="rediss://redis.example:6379/0", **texts)
        assert list(check_secrets(settings, URL, Credentials())) == []
        key.chmod(0o640 if os.getuid() else 0o644)
        [found] = check_secrets(settings, URL, Credentials())
        assert found.state == "wrong" and str(key) in found.detail
        key.chmod(0o600)


def test_contexts_that_others_may_read() -> None:
    write_contexts(contexts_file(), Contexts().with_one("a", Context(URL, "canary")))
    contexts_file().chmod(0o644)
    [found] = check_secrets(None, URL, Credentials())
    assert found.state == "wrong" and "chmod 600" in found.detail and "canary" not in found.detail


@pytest.mark.parametrize(("days", "state"), [(-1, "wrong"), (3, "warning"), (90, "ok")])
def test_when_a_certificate_ends(home: Path, days: int, state: str) -> None:
    authority = Authority(home)
    ends = datetime.now(UTC) + timedelta(days=days, hours=1)
    made = authority.ca.issue_cert("localhost", not_after=ends)
    (home / "server.pem").write_bytes(made.private_key_and_cert_chain_pem.bytes())
    settings = ServerSettings(
        data_dir=home, tls_cert=str(home / "server.pem"), tls_key=str(home / "server.pem"), host="127.0.0.1"
    )
    [found] = check_own_certificate(settings, SystemClock())
    assert found.state == state and "server.pem" in found.detail
    if days > 0:
        assert f"{days} days" in found.detail
        with serving(authority.server_context(not_after=ends)) as server:
            findings = list(check_server(None, server.url, SystemClock(), Credentials(ca=authority.path)))
        assert [finding.state for finding in by_check(findings, "certificate")] == [state]


def test_a_certificate_that_cannot_be_used_is_told(home: Path) -> None:
    settings = ServerSettings(data_dir=home, tls_cert=str(home / "none.pem"), tls_key=str(home / "none.pem"))
    [found] = check_own_certificate(settings, SystemClock())
    assert found.state == "wrong" and "none.pem" in found.detail
    assert list(check_own_certificate(ServerSettings(data_dir=home), SystemClock())) == []


def test_a_second_is_not_a_day() -> None:
    assert until(100.0, "it", 100.0).state == "wrong"
    assert until(100.0 + 14 * 86_400, "it", 100.0).state == "ok"
    assert until(99.0 + 14 * 86_400, "it", 100.0).state == "warning"


def test_how_far_clocks_are_apart() -> None:
    assert seconds_ahead("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777_500_000) == 0
    assert seconds_ahead("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_700_500_000) == 77
    assert seconds_ahead("", 0) is None and seconds_ahead("today", 0) is None


@pytest.mark.parametrize(
    ("moved", "state", "said"), [(0, "ok", ""), (-95, "warning", "ahead of"), (95, "warning", "behind")]
)
def test_a_clock_that_is_off(moved: int, state: str, said: str) -> None:
    clock = WallClock()
    with serving() as server:
        clock.seconds = SystemClock().now_us() / 1e6 + moved
        [found] = by_check(list(check_server(None, server.url, clock)), "clock")
        # It stands still while the server's goes on.
        passed = SystemClock().now_us() / 1e6 + moved - clock.seconds
    assert found.state == state and said in found.detail
    if moved:
        [seconds] = re.findall(r"(\d+) s\b", found.detail)
        assert abs(int(seconds) - abs(moved)) <= passed + 1


def test_what_the_server_says_of_the_token(home: Path) -> None:
    with serving() as server:
        server.tokens = {"good"}

        def ask(token: str) -> list[Finding]:
            return by_check(list(check_server(None, server.url, SystemClock(), Credentials(token=token))), "server")

        [found] = ask("canary")
        assert found.state == "wrong" and "silt login" in found.mend and "canary" not in found.detail
        authority = Authority(home)
    with serving(authority.server_context()) as server:
        [found] = by_check(list(check_server(None, server.url, SystemClock())), "server")
        assert found.state == "wrong" and "no authority that is trusted here" in found.detail
