"""Two servers, each a process of its own, serve the same groups from one Redis."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from groups_process import GroupsProcess
from groups_rig import embedded

from siltlog.infra.redis.embedded import EmbeddedValkey

Start = Callable[[], GroupsProcess]
TRIES = 200


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    server = embedded(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def start(valkey: EmbeddedValkey) -> Iterator[Start]:
    url = valkey.start()
    started: list[GroupsProcess] = []

    def start() -> GroupsProcess:
        started.append(GroupsProcess(url, flights=4))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def join(server: GroupsProcess, member: str, **fields: Any) -> Any:
    return server.call("beat", member, {"topics": ["flights"], **fields})


def owned(told: Any) -> list[dict[str, Any]]:
    return [{"topic": at.split("/")[0], "partition": int(at.split("/")[1])} for at in told["held"]]


def split(server: GroupsProcess, other: GroupsProcess, session_timeout_ms: int = 5_000) -> tuple[Any, Any]:
    """Members a and b hold two of four partitions each; every call is the other server's than the one before."""
    join(server, "a", session_timeout_ms=session_timeout_ms)
    b = join(other, "b", session_timeout_ms=60_000)
    told = server.call("beat", "a", {"generation": 1})
    a = other.call("beat", "a", {"generation": told["generation"], "owned": owned(told)})
    assert a["held"] is None and not a["releasing"]
    b = server.call("beat", "b", {"generation": b["generation"]})
    assert sorted([*told["held"], *b["held"]]) == [f"flights/{number}" for number in range(4)]
    return told | {"generation": a["generation"]}, b


@pytest.mark.slow
def test_any_server_answers_any_call(start: Start) -> None:
    one, two = start(), start()
    a, b = split(one, two, session_timeout_ms=60_000)
    mine = owned(b)[0]
    offsets = [{**mine, "offset": 7}]
    two.call("commit", {"member_id": "b", "generation": b["generation"], "offsets": offsets})
    refused = one.call("commit", {"member_id": "a", "generation": a["generation"], "offsets": offsets})
    assert refused["error_code"] == "fenced_member"
    assert one.call("beat", "b", {"generation": 1})["held"][f"flights/{mine['partition']}"] == 7
    assert one.call("describe") == two.call("describe")


@pytest.mark.slow
def test_who_waits_at_one_server_hears_of_what_another_did(start: Start) -> None:
    one, two = start(), start()
    a, _ = split(one, two, session_timeout_ms=60_000)
    waiting = one.ask("beat", "a", {"generation": a["generation"], "wait_ms": 20_000})
    assert join(two, "c")["held"] == {}
    told = waiting.result(15)
    assert told["held"] is not None and told["releasing"], "before its wait was over"


@pytest.mark.slow
def test_a_server_that_is_killed_moves_nothing_but_the_members_that_die_with_it(start: Start) -> None:
    one, two = start(), start()
    a, b = split(one, two)
    one.ask("beat", "a", {"generation": a["generation"], "wait_ms": 1_000})
    one.ask("beat", "b", {"generation": b["generation"], "wait_ms": 20_000})
    one.kill()
    # b goes on at the other server, as if nothing had been; it hears there that a, which does not, has expired.
    assert two.call("beat", "b", {"generation": b["generation"]})["held"] is None
    told = two.call("beat", "b", {"generation": b["generation"], "wait_ms": 20_000})
    assert len(told["held"]) == 4
    # Another server comes up, finds the group, and grows it when its log has grown.
    three = start()
    for server in (two, three):
        server.call("create", "flights", 6)
    for _ in range(TRIES):
        told = three.call("beat", "b", {"generation": told["generation"], "wait_ms": 500})
        if told["held"] is not None and len(told["held"]) == 6:
            break
    assert three.call("describe") == {"state": "stable", "members": {"b": list(range(6))}}


@pytest.mark.slow
def test_a_redis_that_restarts_moves_nothing_at_either_server(start: Start, valkey: EmbeddedValkey) -> None:
    one, two = start(), start()
    split(one, two)
    with redis.Redis(unix_socket_path=str(valkey._socket)) as client:
        os.kill(int(client.info("server")["process_id"]), signal.SIGKILL)
    valkey._run()
    # Both see another run_id; whichever calls first, what is let go or left stays where it is.
    for server, member in ((one, "a"), (two, "b")):
        told = server.call("beat", member, {"generation": 1})
        assert len(told["held"]) == 2
    assert join(one, "c")["held"] == {} == join(two, "d")["held"]
    for server in (two, one):
        assert not server.call("beat", "a", {"generation": 1})["releasing"]
        assert server.call("describe")["members"]["c"] == []
