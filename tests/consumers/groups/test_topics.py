"""What a group finds in the log: which offsets are beyond the end of their partition, as far as anybody can say."""

import asyncio
from pathlib import Path

import pytest
from fake_log import FakeLog, FakePartition, FakeTopic

from siltlog.consumers.groups.messages import Position
from siltlog.consumers.groups.topics import GroupTopics
from siltlog.consumers.reading.view import Key
from siltlog.infra.errors import problem
from siltlog.infra.records import Bounds
from siltlog.infra.store.local import LocalStore

KNOWN, END, IN_TABLE = 3, 5, 7


class FarPartition(FakePartition):
    """Another node's, of which this one knows KNOWN: its owner has up to END, and the table up to IN_TABLE."""

    def __init__(self, topic: FakeTopic, owner: str) -> None:
        super().__init__(topic, 0)
        self.append([b""] * KNOWN)
        self.owner = owner

    async def decided(self) -> Bounds:
        if self.owner == "away":
            raise problem("topic_unavailable", "it does not answer")
        return None if self.owner == "none" else Bounds(0, 0, END)  # type: ignore[return-value]

    async def reaches(self, offset: int) -> bool:
        return self.owner == "behind" and offset <= IN_TABLE


@pytest.mark.rule("KF17")
@pytest.mark.parametrize(
    ("owner", "offset", "is_beyond"),
    [
        ("there", KNOWN, False),
        ("there", END, False),
        ("there", END + 1, True),
        ("behind", IN_TABLE, False),
        ("behind", IN_TABLE + 1, True),
        ("none", END + 1, False),
        ("away", END + 1, False),
    ],
)
def test_an_offset_is_beyond_the_end_once_the_owner_says_so(
    tmp_path: Path, owner: str, offset: int, is_beyond: bool
) -> None:
    log = FakeLog(LocalStore(str(tmp_path)))
    topic = log.create("t")
    topic.partitions = [FarPartition(topic, owner)]
    there, former = Key("t", topic.topic_id, 0), Key("t", "00000000-0000-4000-8000-000000000000", 0)
    found = asyncio.run(GroupTopics(log).beyond([Position(there, offset), Position(former, offset)]))
    assert found == ({there: Bounds(0, 0, END)} if is_beyond else {})
