"""A path that a proxy leaves before each request."""

from collections.abc import Iterator

import pytest
from http_rig import NO_REDIS, Http

from siltlog.testing import running_server

PREFIX = "/data/log"


@pytest.fixture(scope="module")
def http() -> Iterator[Http]:
    with running_server(redis_url=NO_REDIS, path_prefix=PREFIX) as server:
        yield Http(server.url)


def test_requests_are_answered_with_the_path_and_without_it(http: Http) -> None:
    http.create("first")
    for before in ("", PREFIX):
        assert http.get(f"{before}/readyz").status == 200
        assert http.json("POST", f"{before}/v1/topics/first/records", {"records": [{"value": "a"}]}).status == 200
    found = http.get(f"{PREFIX}/v1/topics/first/partitions/0/records?offset=1").json["records"]
    assert [record["offset"] for record in found] == [1]


@pytest.mark.parametrize("path", ["/data/logs/readyz", "/data/readyz", "/data/log", f"{PREFIX}{PREFIX}/readyz"])
def test_another_path_is_none_of_it(http: Http, path: str) -> None:
    assert http.get(path).error_code == "not_found"


@pytest.mark.parametrize(
    ("path", "status"), [(f"{PREFIX}/readyz", 200), ("/readyz", 200), (2 * PREFIX + "/readyz", 404)]
)
def test_it_is_taken_off_once_where_an_upgrade_is_declined_too(http: Http, path: str, status: int) -> None:
    assert http.call("GET", path, Connection="upgrade", Upgrade="h2c").status == status


def test_people_are_led_to_the_page_below_it(http: Http) -> None:
    sent = http.call("GET", f"{PREFIX}/", Accept="text/html")
    assert (sent.status, sent.headers["location"]) == (303, "ui/")
    assert http.get(f"{PREFIX}/ui/").status == 200
