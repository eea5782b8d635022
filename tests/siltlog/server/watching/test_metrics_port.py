"""A port for metrics alone: what it answers, and to whom, while the main port goes by its own rules."""

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import urllib3
from http_rig import NO_REDIS, Http
from ports import free_port
from waiting import until

from siltlog.infra.errors import ConfigError
from siltlog.infra.metrics import catalogue
from siltlog.testing import running_server


def test_who_watches_needs_no_key_there_and_gets_nothing_else() -> None:
    port = free_port()
    # An address that other machines reach, which is not waived: of this port it is taken as it is.
    with running_server(auth="on", redis_url=NO_REDIS, metrics_port=port, metrics_host="0.0.0.0") as server:
        watched, main = Http(f"http://127.0.0.1:{port}"), Http(server.url)
        reply = watched.get("/metrics")
        assert reply.status == 200
        assert b"\nsilt_ready 1.0\n" in reply.body
        assert watched.get("/healthz").json == {"status": "up"}
        assert watched.get("/readyz").json["status"] == "ready"
        assert watched.call("HEAD", "/healthz").status == 200
        for path in ("/", "/v1/topics", "/v1/cluster", "/docs", "/metrics/"):
            refused = watched.get(path)
            assert (refused.status, refused.error_code) == (404, "not_found")
            assert "answers /metrics, /healthz, /readyz" in refused.json["detail"]
        assert watched.call("POST", "/metrics").status == 405
        published = watched.call("POST", "/v1/topics/t/records", b"x", Content_Type="application/octet-stream")
        assert published.status == 404
        assert watched.get("/metrics", Host="attacker.example").error_code == "unknown_host"
        # The rules of the main port are what they were.
        assert main.get("/metrics").status == 401
        assert main.get("/healthz").status == 200


def deaf(http: Http) -> socket.socket:
    """A connection on which little is taken."""
    parts = urlsplit(http.url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((parts.hostname, parts.port))
    return connection


def test_it_shows_the_drain_and_ends_after_it() -> None:
    port = free_port()
    with running_server(redis_url=NO_REDIS, metrics_port=port) as server:
        watched, main = Http(f"http://127.0.0.1:{port}"), Http(server.url)
        main.create("wide")
        for _ in range(10):
            assert main.publish("wide", *[{"value": "w" * 60_000}] * 16).status == 200
        with deaf(main) as held_up:
            held_up.sendall(
                b"GET /v1/topics/wide/partitions/0/records?max_bytes=9000000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
            )
            until(lambda: watched.metrics()[catalogue.IN_FLIGHT_BYTES.name] > 1_000_000)
            server._process.terminate()  # type: ignore[union-attr]
            # It waits for who does not take his answer, until that was seen.
            until(lambda: watched.metrics()[catalogue.DRAINING.name] == 1)
            assert watched.get("/readyz").status == 503
        assert server.stop() == 0
        with pytest.raises(urllib3.exceptions.HTTPError):
            watched.get("/metrics")


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: .*another SILT_METRICS_PORT"),
            running_server(redis_url=NO_REDIS, metrics_port=port, data_dir=tmp_path),
        ):
            pass
    with (
        pytest.raises(ConfigError, match="SILT_METRICS_HOST is set, and SILT_METRICS_PORT is not"),
        running_server(redis_url=NO_REDIS, metrics_host="0.0.0.0", data_dir=tmp_path),
    ):
        pass
