"""Each proxy, with the configuration that the repository has for it, in front of a real server."""

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
import urllib3
from http_rig import NO_REDIS, Http
from proxy_rig import FILES, proxy
from push_rig import talking
from tls_rig import Made, client_of

from siltlog.testing import running_server

MIB = 1024 * 1024
WAIT_MS = 20_000
BYTES = "application/octet-stream"
pytestmark = [pytest.mark.deploy, pytest.mark.slow]


class Front(NamedTuple):
    http: Http
    context: ssl.SSLContext
    behind: Http


@pytest.fixture(scope="module", params=FILES)
def front(
    request: pytest.FixtureRequest, tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    tool(request.param)
    made = Made(tmp_path_factory.mktemp("proxy"))
    with (
        running_server(redis_url=NO_REDIS, flush_ms=50, trusted_proxies="127.0.0.1") as server,
        proxy(request.param, made, server.url) as url,
    ):
        context = client_of(made)
        yield Front(Http(url, context), context, Http(server.url))


def test_what_is_published_through_it_is_read_through_it(front: Front) -> None:
    front.http.create("orders")
    assert front.http.publish("orders", {"value": "one"}, {"value": "two"}).status == 200
    assert [record["value"] for record in front.http.read("orders", query="")] == ["one", "two"]


def test_it_says_who_calls_and_by_what(front: Front) -> None:
    # Without the proxy's word that TLS ended there, nothing is answered.
    assert front.behind.get("/v1/topics").error_code == "tls_required"
    assert front.http.get("/v1/topics").status == 200
    # A page's origin is its own only by the scheme that the proxy tells; what a caller claims is thrown away.
    page = front.http.url
    assert front.http.get("/v1/topics", Origin=page, X_Forwarded_Proto="http").status == 200


def test_a_large_body_goes_through_and_a_record_too_large_is_refused(front: Front) -> None:
    front.http.create("large")
    body = b"x" * (7 * MIB)
    sent = front.http.call("POST", "/v1/topics/large/records", body, Content_Type=BYTES)
    assert sent.status == 200
    records = [json.dumps({"value": "y" * MIB}) for _ in range(20)]
    whole = ('{"records": [' + ", ".join(records) + "]}").encode()
    assert front.http.call("POST", "/v1/topics/large/records", whole, Content_Type="application/json").status == 200
    assert front.http.end("large") == 21
    assert front.http.call("POST", "/v1/topics/large/records", b"x" * (9 * MIB), Content_Type=BYTES).status == 413


def test_a_read_that_waits_is_answered_by_the_record_that_comes(front: Front) -> None:
    front.http.create("later")
    got: list[object] = []

    def read() -> None:
        path = f"/v1/topics/later/partitions/0/records?offset=0&wait_ms={WAIT_MS}"
        got.append([record["value"] for record in front.http.get(path).json["records"]])

    reader = threading.Thread(target=read)
    began = time.monotonic()
    reader.start()
    time.sleep(0.5)
    front.http.publish("later", {"value": "here"})
    reader.join(30)
    assert got == [["here"]]
    assert time.monotonic() - began < WAIT_MS / 1000 / 2


def test_a_stream_arrives_event_by_event(front: Front) -> None:
    front.http.create("tail")
    parts = urlsplit(front.http.url)
    with urllib3.HTTPSConnectionPool(parts.hostname, parts.port, ssl_context=front.context, timeout=20) as pool:
        path = "/v1/topics/tail/tail?offset=earliest"
        reply = pool.request("GET", path, headers={"Accept": "text/event-stream"}, preload_content=False)
        assert reply.status == 200
        lines = iter(reply)
        for number in range(3):
            front.http.publish("tail", {"value": f"event {number}"})
            # The next is sent only once this one is here: a proxy that holds replies back would hang.
            while f"event {number}".encode() not in next(lines):
                pass
        reply.close()


def test_a_web_socket_is_spoken_both_ways(front: Front) -> None:
    front.http.create("socket")
    front.http.publish("socket", {"value": "one"})
    path = "/v1/topics/socket/ws?offset=earliest"
    with talking(front.http.url, path, ssl=front.context) as socket:
        socket.say("credit", records=1)
        assert [record["value"] for record in socket.records(1)] == ["one"]
        front.http.publish("socket", {"value": "two"})
        socket.say("credit", records=1)
        assert [record["value"] for record in socket.records(1)] == ["two"]


def test_the_files_name_what_the_page_says() -> None:
    folder = Path(__file__).parents[2] / "infra" / "deploy" / "proxies"
    assert {path.name for path in folder.iterdir()} == set(FILES.values())
    for name in FILES.values():
        text = (folder / name).read_text("utf-8")
        for needed in ("127.0.0.1:7070", "X-Forwarded-For", "X-Forwarded-Proto", "SILT_TRUSTED_PROXIES=127.0.0.1"):
            assert needed in text, (name, needed)
