"""The server knows who is at the other end of a connection, and whose word counts where TLS ends at proxies."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from http_rig import NO_REDIS, Http, Reply, exchange

from siltlog.infra.http.connection.peer import Peers
from siltlog.infra.locations import networks
from siltlog.infra.security.proxies import Proxies
from siltlog.testing import running_server

PROXIES = Proxies(networks("10.0.0.0/8"))


def transport(address: str, *, tls: bool = False) -> Any:
    shown = SimpleNamespace(getpeercert=lambda binary: None) if tls else None
    known = {"peername": (address, 4711), "ssl_object": shown}
    return SimpleNamespace(get_extra_info=known.get)


@pytest.mark.parametrize(
    ("address", "tls", "in_clear"),
    [
        ("127.0.0.1", False, False),
        ("::ffff:127.0.0.1", False, False),
        ("::1", False, False),
        ("10.1.2.3", False, True),
        ("192.168.0.1", False, True),
        ("fd00::1", False, True),
        ("192.168.0.1", True, False),
    ],
)
def test_who_came_in_clear_text(address: str, tls: bool, in_clear: bool) -> None:
    peer = Peers(PROXIES, needs_tls=True).of(transport(address, tls=tls))
    assert (peer.in_clear, peer.scheme, peer.local) == (in_clear, "https" if tls else "http", False)
    assert not Peers(PROXIES, needs_tls=False).of(transport(address, tls=tls)).in_clear


def test_an_address_of_ipv4_on_a_socket_of_both_families() -> None:
    peer = Peers(PROXIES, needs_tls=True).of(transport("::ffff:10.1.2.3"))
    assert (peer.address, peer.is_proxy) == ("10.1.2.3", True)


@pytest.fixture(scope="module")
def proxied() -> Iterator[Http]:
    """A server to which everybody here is a trusted proxy."""
    with running_server(redis_url=NO_REDIS, flush_ms=50, trusted_proxies="127.0.0.1") as server:
        http = Http(server.url)
        assert create(http, X_Forwarded_Proto="https").status == 201
        yield http


def create(http: Http, **headers: str) -> Reply:
    return http.json("POST", "/v1/topics", {"name": "t", "partitions": 1}, **headers)


@pytest.mark.rule("A24")
def test_what_came_to_the_proxy_in_clear_text_is_refused(proxied: Http) -> None:
    for headers in ({}, {"X_Forwarded_Proto": "http"}, {"X_Forwarded_Proto": "https, http"}):
        assert proxied.get("/v1/topics", **headers).error_code == "tls_required"
        assert proxied.publish("t", {"value": "x"}, **headers).error_code == "tls_required"
    assert proxied.get("/v1/topics", X_Forwarded_Proto="http, https").status == 200
    assert proxied.publish("t", {"value": "x"}, X_Forwarded_Proto="https").status == 200
    assert [record["offset"] for record in proxied_read(proxied)] == [0]


def proxied_read(http: Http) -> list[dict[str, Any]]:
    reply = http.get("/v1/topics/t/partitions/0/records?offset=0", X_Forwarded_Proto="https")
    records: list[dict[str, Any]] = reply.json["records"]
    return records


def test_the_word_of_the_last_proxy_counts_also_in_two_fields(proxied: Http) -> None:
    fields = "Host: localhost\nX-Forwarded-Proto: https\nX-Forwarded-Proto: http"
    with proxied.connect() as connection:
        assert b"tls_required" in exchange(connection, f"GET /v1/topics HTTP/1.1\n{fields}")


def test_an_orchestrator_asks_past_the_proxy(proxied: Http) -> None:
    assert (proxied.get("/healthz").status, proxied.get("/readyz").status) == (200, 200)
    assert proxied.get("/metrics").error_code == "tls_required"


def test_a_page_is_of_the_scheme_that_the_proxy_saw(proxied: Http) -> None:
    host = proxied.url.removeprefix("http://")
    own = {"Origin": f"https://{host}", "X_Forwarded_Proto": "https"}
    assert proxied.get("/v1/topics", **own).status == 200
    other = own | {"Origin": f"http://{host}"}
    assert proxied.get("/v1/topics", **other).error_code == "origin_not_allowed"


def test_who_waived_tls_is_not_refused_for_the_lack_of_it() -> None:
    with running_server(redis_url=NO_REDIS, trusted_proxies="127.0.0.1", insecure="no-tls") as server:
        assert Http(server.url).get("/v1/topics").status == 200


@pytest.mark.rule("A23")
def test_what_strangers_say_counts_for_nothing(http: Http) -> None:
    own = http.url.replace("http", "https")
    assert http.get("/v1/topics", Origin=own, X_Forwarded_Proto="https").error_code == "origin_not_allowed"
