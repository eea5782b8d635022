"""Clients and servers of neighbouring releases: each of this one against what the other said in earlier ones."""

from pathlib import Path
from typing import Any

import pytest
from golden_rig import FIXTURES
from wire_tape import CHOSEN, Exchange, Playing, calls, chosen, conversation, lacking, played, read

import siltlog
from siltlog.infra.client.core import Request
from siltlog.infra.client.transport import HttpTransport
from siltlog.testing import running_server

TAPES = sorted(FIXTURES.glob("*-wire.jsonl"))


def test_this_release_has_its_tape() -> None:
    """`tests/golden/make.py` makes it; of each call that the library makes there is one at least."""
    found = calls(played(FIXTURES / f"{siltlog.__version__}-wire.jsonl"))
    assert found.keys() >= {
        "POST /v1/topics",
        "GET /v1/cluster",
        "POST /v1/topics/wire/records",
        "PUT /v1/groups/readers/members/{id}",
        "POST /v1/fetch",
        "PUT /v1/groups/readers/offsets",
        "DELETE /v1/groups/readers/members/{id}",
    }


@pytest.mark.parametrize("path", TAPES, ids=lambda path: path.stem)
def test_this_client_asks_an_earlier_server_as_its_own_did(path: Path) -> None:
    """A server refuses what it does not know: nothing may be asked otherwise, nor may an answer be misread."""
    playing = Playing(played(path))
    try:
        found = conversation("http://127.0.0.1:1", playing)
    finally:
        playing.close()
    assert playing.faults == []
    assert [(offset, key, value, headers) for _, offset, key, value, headers in found] == [
        (0, b"k", b"one", (("h", b"v"),)),
        (1, None, b"two", ()),
        (2, b"k", b"three", ()),
    ]


@pytest.mark.parametrize("path", TAPES, ids=lambda path: path.stem)
def test_this_server_answers_an_earlier_client_as_its_own_did(path: Path, tmp_path: Path) -> None:
    transport = HttpTransport()
    stands: dict[str, str] = {}
    with running_server(data_dir=str(tmp_path / "data")) as server:
        for each in played(path):
            reply = transport.send(server.url, again(each, stands))
            assert (reply.status, reply.headers.get("content-type", "")) == (each.status, each.media), each.path
            told, answered = read(each.media, each.answered), read(each.media, bytes(reply.body))
            assert lacking(told, answered) == [], each.path
            stands |= chosen(told, answered)
    transport.close()


def again(each: Exchange, stands: dict[str, str]) -> Request:
    """The request as it was, with the ids that this server has given."""
    body = each.sent
    if any(name.encode() in body for name in CHOSEN):
        for then, at_present in stands.items():
            body = body.replace(then.encode(), at_present.encode())
    return Request(each.method, each.path, each.headers, (body,) if body else ())


def test_what_an_earlier_client_would_miss_is_found() -> None:
    told: dict[str, Any] = {"partitions": [{"offset": 1, "lag": 3}], "features": ["a"], "new": None}
    assert lacking(told, told | {"more": 1, "features": ["b", "a"]}) == []
    assert lacking(told, {"partitions": [{"offset": 2, "lag": 4}], "features": ["b"]}) == [
        ".new is gone",
        ".partitions.offset is 2, and was 1",
        ".features lacks a",
    ]
    assert lacking(told, told | {"partitions": []}) == [".partitions has 0 in place of 1"]
    assert lacking(told, told | {"partitions": [{"offset": 1, "lag": "3"}]}) == [".partitions.lag is '3', and was 3"]


def test_a_client_that_asks_otherwise_is_found() -> None:
    playing = Playing(played(TAPES[0]))
    body = b'{"name":"wire","partitions":2,"config":{}}'
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    assert playing.send("", Request("POST", "/v1/topics", headers, (body,))).status == 400
    assert len(playing.faults) == 1
