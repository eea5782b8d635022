"""What earlier releases left, opened by this one: all that was acknowledged, once, in order, and groups that go on."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from access_rig import As
from golden_rig import FIXTURES, KINDS, NODES, TOPIC, Kind, consumed, everything, order, sequenced, standing, unpacked

import siltlog

pytestmark = pytest.mark.slow
RELEASES = sorted({path.name.rpartition("-")[0] for path in FIXTURES.glob("*.tar.xz")})


@dataclass
class Opened:
    folder: Path
    kind: Kind
    told: dict[str, Any]
    caller: As


def test_this_release_has_left_its_own() -> None:
    """`tests/golden/make.py` makes them, once a version."""
    there = {path.name for path in FIXTURES.glob(f"{siltlog.__version__}-*.tar.xz")}
    assert there == {f"{siltlog.__version__}-{kind}.tar.xz" for kind in KINDS}


@pytest.fixture(scope="module", params=[(release, kind) for release in RELEASES for kind in KINDS], ids=":".join)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    release, kind = request.param
    folder = tmp_path_factory.mktemp("golden") / "made"
    told = unpacked(FIXTURES / f"{release}-{kind}.tar.xz", folder)
    with standing(folder, kind) as servers:
        yield Opened(folder, kind, told, As(servers[0].url, told["token"]))


def test_everything_that_was_acknowledged_is_there_once_and_in_order(opened: Opened) -> None:
    assert opened.caller.get("/v1/cluster").json["cluster_id"] == opened.told["cluster_id"]
    assert everything(opened.caller) == opened.told["records"]


def test_who_had_no_key_has_none(opened: Opened) -> None:
    assert As(opened.caller.url, None).get(f"/v1/topics/{TOPIC}").status == 401


def test_what_is_sent_again_is_known(opened: Opened) -> None:
    again = sequenced(opened.caller, range(3, 5))
    keyed = opened.caller.publish(TOPIC, order(30), Idempotency_Key="once")
    for reply, first in ((again, "sequenced"), (keyed, "idempotent")):
        told = [each | {"duplicate": True} for each in opened.told[first]["partitions"]]
        assert (reply.status, reply.json["partitions"]) == (200, told)
    assert everything(opened.caller) == opened.told["records"]


def test_the_group_goes_on_where_it_was(opened: Opened) -> None:
    stored = opened.told["records"][TOPIC]
    every = [(partition, record["offset"]) for partition, records in enumerate(stored) for record in records]
    read = [tuple(each) for each in opened.told["read"]]
    assert len(read) == 7
    assert sorted(consumed(opened.caller, None)) == sorted(set(every) - set(read))


def test_it_takes_more_and_what_was_there_stays(opened: Opened) -> None:
    before = opened.told["records"][TOPIC][0]
    reply = opened.caller.publish(TOPIC, {"value": "more", "partition": 0})
    [place] = reply.json["partitions"]
    assert (reply.status, place["first_offset"]) == (200, len(before))
    assert opened.caller.read(TOPIC, 0)[:-1] == before


def test_groups_go_on_without_their_redis(tmp_path: Path) -> None:
    """What was committed is a record of a topic, too."""
    for release in RELEASES:
        folder = tmp_path / release
        told = unpacked(FIXTURES / f"{release}-one.tar.xz", folder)
        [name] = NODES["one"]
        shutil.rmtree(folder / name / "valkey")
        with standing(folder, "one") as [server]:
            left = sum(map(len, told["records"][TOPIC])) - len(told["read"])
            assert len(consumed(As(server.url, told["token"]), None)) == left
