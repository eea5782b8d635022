"""Queries of callers: what they may not read is not there, and each has one at a time."""

import threading
from collections.abc import Iterator

import pytest
from callers_rig import Answer, Caller, Keys, asking_server, role
from http_rig import NO_REDIS
from sql_rig import ENDLESS, children_of, is_busy
from waiting import until

from siltlog.server_process import ServerProcess


class World:
    def __init__(self, server: ServerProcess, keys: Keys) -> None:
        self.server, self.keys = server, keys
        keys.add("own", role("consumer", "own-"))
        keys.add("other", role("consumer", ""))
        self.local = Caller(server, None, local=True)
        keys.held_by(self.local)
        for topic in ("own-t", "hidden"):
            assert self.local.call("PUT", f"/v1/topics/{topic}", {}).status == 201
            body = {"records": [{"value": topic}]}
            self.local.call("POST", f"/v1/topics/{topic}/records", body)

    def caller(self, name: str) -> Caller:
        return Caller(self.server, self.keys.tokens[name])

    def ask(self, name: str, sql: str) -> Answer:
        return self.caller(name).call("POST", "/v1/sql", {"sql": sql})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with asking_server(tmp_path_factory.mktemp("access"), redis_url=NO_REDIS) as (server, keys):
        yield World(server, keys)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from hidden",
        'select * from "own-t", hidden',
        'select * from "own-t" where exists (select 1 from HIDDEN)',
        'with x as (select * from silt.hidden) select * from "own-t", x',
        "select * from not_there",
    ],
)
def test_what_may_not_be_read_is_forbidden_whether_it_is_there_or_not(world: World, sql: str) -> None:
    refused = world.ask("own", sql)
    assert (refused.status, refused.json["error_code"], refused.json["right"]) == (403, "forbidden", "read")


@pytest.mark.rule("SQ2")
def test_what_is_not_named_is_not_there(world: World) -> None:
    for sql in (
        "select * from \"own-t\", query_table('hidden')",
        "select * from \"own-t\", query('select * from hid' || 'den')",
        'select * from "own-t", query(\'select * from "files of hidden"\')',
    ):
        assert world.ask("own", sql).status in (403, 404, 422), sql
    assert world.ask("own", 'select string(value) from "own-t"').json["rows"] == [["own-t"]]
    [[names]] = world.ask("own", 'select list(view_name) from duckdb_views(), "own-t" where not internal').json["rows"]
    assert not [name for name in names if "hidden" in name]


@pytest.mark.rule("SQ2")
def test_one_at_a_time_and_it_ends_with_the_right(world: World) -> None:
    answers: list[Answer] = []
    sql = ENDLESS.format(topic='"own-t"')
    thread = threading.Thread(target=lambda: answers.append(world.ask("own", sql)))
    thread.start()
    until(lambda: bool(children_of(world.server.pid)))
    crowded = world.ask("own", 'select 1 from "own-t"')
    assert (crowded.status, crowded.json["error_code"]) == (503, "overloaded")
    assert "key:own" in crowded.json["detail"]
    assert world.ask("other", "select 1 from hidden").status == 200
    # Only once it runs is there something to be taken away.
    until(lambda: is_busy(world.server.pid))
    world.keys.grant("own", role("consumer", "elsewhere-"))
    thread.join()
    assert (answers[0].status, answers[0].json["error_code"]) == (403, "forbidden")
    until(lambda: not children_of(world.server.pid))
    world.keys.grant("own", role("consumer", "own-"))
    world.keys.held_by(world.local)


def test_nobody_asks_without_a_credential(world: World) -> None:
    assert Caller(world.server, None).call("POST", "/v1/sql", {"sql": "select 1"}).status == 401
