"""Keys: of a name there is one, it is replaced while its user changes over, and with the last one all goes."""

import time
from collections.abc import Iterator

import pytest
from access_rig import As, Secured, secured_server


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with secured_server() as found:
        yield found


@pytest.fixture
def fresh() -> Iterator[Secured]:
    """One that no key was made at yet."""
    with secured_server() as found:
        yield found


def test_a_rotated_key_counts_until_its_end(fresh: Secured) -> None:
    key_id, old = fresh.key("rotated", ("viewer", ""))
    rotated = fresh.admin.json("POST", f"/v1/access/keys/{key_id}/rotate", {"overlap_ms": 3_600_000})
    assert (rotated.status, rotated.json["name"]) == (201, "rotated")
    new = As(fresh.server.url, rotated.json["key"])
    assert [each.get("/v1/cluster").status for each in (old, new)] == [200, 200]
    assert new.get("/v1/access/whoami").json["principal"] == "key:rotated"
    newest = fresh.admin.json("POST", f"/v1/access/keys/{rotated.json['id']}/rotate", {"overlap_ms": 600})
    deadline = time.monotonic() + 60
    while (reply := new.get("/v1/cluster")).status == 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (reply.status, reply.json["reason"]) == (401, "expired")
    assert [each.get("/v1/cluster").status for each in (old, As(fresh.server.url, newest.json["key"]))] == [200, 200]
    assert fresh.admin.json("POST", f"/v1/access/keys/{rotated.json['id']}/rotate", {}).status == 404


def test_a_key_of_a_name_is_one(secured: Secured) -> None:
    secured.key("single")
    twice = secured.admin.json("POST", "/v1/access/keys", {"name": "single"})
    assert (twice.status, twice.error_code) == (409, "key_exists")
    for wrong in ({"name": "a b"}, {"name": "x" * 65}, {"name": "y", "expires_at": 1}, {"name": "y", "role": "admin"}):
        assert secured.admin.json("POST", "/v1/access/keys", wrong).status == 422


def test_with_the_last_key_of_a_name_goes_what_it_was_given(fresh: Secured) -> None:
    first, _ = fresh.key("leaver", ("producer", "flights"), ("viewer", ""))
    fresh.key("leaver.producer", ("producer", "flights"))
    fresh.allow("gives", "key:leaver", "topic", "salaries", "read")
    fresh.allow("denies", "key:leaver", "topic", "plans", "read", effect="deny")
    assert (
        fresh.admin.json("PUT", "/v1/access/quotas/q", {"principal": "key:leaver", "requests_per_s": 9}).status == 200
    )
    second = fresh.admin.json("POST", f"/v1/access/keys/{first}/rotate", {}).json["id"]

    def of_leaver(part: str) -> set[str]:
        return {
            each for each, has in fresh.admin.get("/v1/access").json[part].items() if has["principal"] == "key:leaver"
        }

    assert fresh.admin.call("DELETE", f"/v1/access/keys/{first}").status == 204
    assert len(of_leaver("bindings")) == 2, "its other key counts still"
    assert fresh.admin.call("DELETE", f"/v1/access/keys/{second}").status == 204
    assert of_leaver("bindings") == set()
    assert (of_leaver("acls"), of_leaver("quotas")) == ({"denies"}, {"q"})
    assert len(fresh.admin.get("/v1/access").json["bindings"]) == 2, "others keep theirs"
    _, again = fresh.key("leaver")
    assert again.get("/v1/access/whoami").json["roles"] == []


def test_a_role_that_a_key_is_made_with_takes_no_others_place(fresh: Secured) -> None:
    fresh.key("a", ("producer", "viewer"))
    fresh.key("a.producer", ("viewer", ""))
    bindings = fresh.admin.get("/v1/access").json["bindings"]
    assert {(has["principal"], has["role"]) for has in bindings.values()} >= {
        ("key:a", "producer"),
        ("key:a.producer", "viewer"),
    }
    for prefix in ("_audit", "a/b", "x" * 300):
        wanted = {"name": "c", "bindings": [{"role": "viewer", "prefix": prefix}]}
        assert fresh.admin.json("POST", "/v1/access/keys", wanted).status == 422
        wanted = {"principal": "key:a", "role": "viewer", "prefix": prefix}
        assert fresh.admin.json("PUT", "/v1/access/bindings/c", wanted).status == 422
