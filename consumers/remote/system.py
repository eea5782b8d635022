"""Appending from inside a node to topics that another may own: offsets of groups, dead letters, runs of jobs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.reading.view import SystemLog, TopicView
from siltlog.consumers.remote import messages
from siltlog.consumers.remote.log import ClusterLog
from siltlog.consumers.remote.messages import (
    Append,
    DeadLetters,
    DeleteRecords,
    Ensure,
    LastOf,
    ProducersOf,
    SystemAsked,
)
from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.peers.calls import PeerCall
from siltlog.infra.records import NewRecord
from siltlog.infra.settings.topic_config import Value

OWNER_SECONDS = 10.0
DELETE_SECONDS = 30.0
"""What is deleted is flushed before, which is waited for."""
AGAIN_SECONDS = 0.1
BODY_BYTES_MAX = 64 * 1024 * 1024
_RACED = ("unknown_topic", "topic_exists", "not_owner")


class ClusterSystem:
    """Satisfies SystemLog. Used on one event loop."""

    def __init__(self, local: SystemLog, log: ClusterLog, clock: Clock) -> None:
        self._local = local
        self._log = log
        self._clock = clock

    async def ensure(self, name: str, partitions: int, config: Mapping[str, Value]) -> TopicView:
        # At `wal` its records would be on one disk alone, and nobody could go on while that is away.
        asked = Ensure(
            name, partitions, {key: value for key, value in config.items() if (key, value) != ("acks", "wal")}
        )
        return await self._made(name, partitions, name, asked)

    async def dead_letters(self, topic: str) -> TopicView:
        partitions = len(self._log.topic(topic).partitions)
        return await self._made(names.dead_letter_topic(topic), partitions, topic, DeadLetters(topic))

    async def append(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        *,
        producer_id: str = "",
        sequences: Sequence[int] = (),
        epoch: int = 0,
    ) -> list[int | None]:
        if not records:
            return []
        if epoch:
            return await self._local.append(topic, partition, records, epoch=epoch)
        asked = Append(topic, partition, tuple(records), producer_id, tuple(sequences))
        offsets: list[int | None] = await self._ask(topic, asked, harmless=bool(producer_id))
        return offsets

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        start: int = await self._ask(topic, DeleteRecords(topic, partition, before_offset), DELETE_SECONDS)
        return start

    def epoch_of(self, topic: str) -> int:
        return self._local.epoch_of(topic)

    async def last_of(self, topic: str, partition: int, producer_id: str) -> tuple[int, int] | None:
        found = await self._ask(topic, LastOf(topic, partition, producer_id))
        return None if found is None else (found[0], found[1])

    async def producers_of(self, topic: str, prefix: str) -> set[str]:
        return set(await self._ask(topic, ProducersOf(topic, prefix)))

    async def _made(self, name: str, partitions: int, of: str, asked: SystemAsked) -> TopicView:
        """The topic `name`, once this node knows that it has so many partitions; its maker is the owner of `of`."""
        deadline = self._clock.monotonic() + OWNER_SECONDS
        while True:
            try:
                found = self._log.topic(name)
                if len(found.partitions) >= partitions:
                    return found
                await self._ask(of, asked)
                await self._log.refresh(found, found.snapshot.version + 1)
            except SiltlogError as error:
                # Another node may be making it just now: the next view names it.
                if error.error_code not in (*_RACED, "topic_unavailable") or self._clock.monotonic() > deadline:
                    raise
                if error.error_code == "unknown_topic":
                    await self._make(of, asked)
            await self._log.news(AGAIN_SECONDS)
            if self._clock.monotonic() > deadline:
                raise problem("topic_unavailable", f"the topic {name} is not known to this node yet", topic=name)

    async def _make(self, of: str, asked: SystemAsked) -> None:
        try:
            await self._ask(of, asked)
        except SiltlogError as error:
            if error.error_code not in _RACED or isinstance(asked, DeadLetters):
                raise

    async def _ask(
        self, topic: str, asked: SystemAsked, seconds: float = OWNER_SECONDS, *, harmless: bool = True
    ) -> Any:
        body = messages.encode(asked)
        reply = await self._log.ask_owner(topic, messages.SYSTEM, body, seconds, harmless=harmless)
        return await answered(self._local, asked) if reply is None else msgspec.json.decode(reply.body)


async def answered(local: SystemLog, asked: SystemAsked) -> Any:
    """What this node's own log does and says."""
    match asked:
        case Ensure(topic, partitions, config):
            return (await local.ensure(topic, partitions, config)).name
        case DeadLetters(topic):
            return (await local.dead_letters(topic)).name
        case Append(topic, partition, records, producer_id, sequences):
            return await local.append(topic, partition, records, producer_id=producer_id, sequences=sequences)
        case DeleteRecords(topic, partition, before_offset):
            return await local.delete_records(topic, partition, before_offset)
        case LastOf(topic, partition, producer_id):
            return await local.last_of(topic, partition, producer_id)
        case ProducersOf(topic, prefix):
            return sorted(await local.producers_of(topic, prefix))


def system_calls(local: SystemLog, owns: Callable[[str], None]) -> Mapping[str, PeerCall]:
    """What other nodes ask of the topics that this one owns; `owns(topic)` raises Unavailable `not_owner`."""

    async def system(request: Request) -> Response:
        asked = decode(await body_of(request, BODY_BYTES_MAX), messages.system_asked)
        owns(asked.topic)
        return json_reply(await answered(local, asked))

    return {messages.SYSTEM: system}
