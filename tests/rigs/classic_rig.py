"""Members of classic groups of Kafka, without a client: what each sends, and what it is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from groups_rig import FakeLog, Rig, rig

from siltlog.consumers.kafka.classic import ClassicGroups, Joined, Joining, Speaker, Synced
from siltlog.infra.kafka.errors import KafkaError

SESSION_MS = 30_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """What a consumer says that it reads."""
    return b"\0\0" + _texts(topics) + b"\xff\xff\xff\xff"


def assignment(**partitions: list[int]) -> bytes:
    """What a leader gives a consumer: numbers of partitions by topic."""
    parts = [
        _text(topic) + len(numbers).to_bytes(4) + b"".join(number.to_bytes(4) for number in numbers)
        for topic, numbers in partitions.items()
    ]
    return b"\0\0" + len(parts).to_bytes(4) + b"".join(parts) + b"\xff\xff\xff\xff"


def joining(member_id: str = "", instance_id: str = "", **more: Any) -> Joining:
    fields: dict[str, Any] = {
        "client_id": "client",
        "client_host": "127.0.0.1",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "protocols": [("range", subscription("t"))],
        "asks_for_id": False,
        "skips": True,
    }
    return Joining(member_id=member_id, instance_id=instance_id, **fields | more)


@dataclass
class ClassicRig:
    of: Rig
    classic: ClassicGroups

    async def join(self, member_id: str = "", instance_id: str = "", **more: Any) -> Joined:
        return await self.classic.join("g", joining(member_id, instance_id, **more), None)

    async def sync(self, joined: Joined, *given: tuple[str, bytes], instance_id: str = "") -> Synced:
        at = Speaker(joined.member_id, instance_id, joined.epoch)
        return await self.classic.sync("g", at, None, None, given, None)

    async def beat(self, joined: Joined, instance_id: str = "") -> KafkaError:
        return await self.classic.heartbeat("g", Speaker(joined.member_id, instance_id, joined.epoch), None)

    async def leave(self, *members: tuple[str, str]) -> list[KafkaError]:
        return list((await self.classic.leave("g", members, None)).members)


@asynccontextmanager
async def classic_rig(url: str, log: FakeLog, *, delay_ms: int = 0) -> AsyncIterator[ClassicRig]:
    async with rig(url, log) as made:
        yield ClassicRig(made, ClassicGroups(made.groups, delay_ms, lambda: log.draining))


def _text(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()


def _texts(texts: tuple[str, ...]) -> bytes:
    return len(texts).to_bytes(4) + b"".join(map(_text, texts))
