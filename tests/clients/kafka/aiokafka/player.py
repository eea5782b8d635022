"""A player by aiokafka: it answers each line of JSON that it is asked with one."""

import asyncio
import json
import sys
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code

READ_SECONDS_MAX = 30
POLL_MS = 200


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def data(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def told(records: Any) -> list[dict[str, Any]]:
    return [
        {
            "partition": record.partition,
            "offset": record.offset,
            "key": text(record.key),
            "value": text(record.value),
            "headers": [[name, text(value)] for name, value in record.headers],
        }
        for each in records.values()
        for record in each
    ]


class Player:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.members: dict[str, AIOKafkaConsumer] = {}

    async def create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            answer = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])
        finally:
            await admin.close()
        for _, code, *_ in answer.topic_errors:
            if code:
                raise for_code(code)

    async def produce(self, topic: str, codec: str, records: list[dict[str, Any]]) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
            request_timeout_ms=5_000,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    data(record["value"]),
                    data(record["key"]),
                    record["partition"],
                    headers=[(name, data(value)) for name, value in record["headers"]],
                )
                for record in records
            ]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()

    async def read(self, topic: str, partitions: int, count: int) -> dict[str, Any]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
            found: list[dict[str, Any]] = []
            end = time.monotonic() + READ_SECONDS_MAX
            while len(found) < count and time.monotonic() < end:
                found += told(await consumer.getmany(timeout_ms=POLL_MS))
        finally:
            await consumer.stop()
        return {"records": found}

    async def join(self, member: str, group: str, topic: str) -> None:
        self.members[member] = AIOKafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=9_000,
        )
        await self.members[member].start()

    async def poll(self, member: str) -> dict[str, Any]:
        consumer = self.members[member]
        records = told(await consumer.getmany(timeout_ms=POLL_MS))
        return {"records": records, "held": [at.partition for at in consumer.assignment()]}

    async def commit(self, member: str) -> None:
        await self.members[member].commit()

    async def leave(self, member: str) -> None:
        await self.members.pop(member).stop()


async def main() -> None:
    player = Player(sys.argv[1])
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        try:
            answer = await getattr(player, asked.pop("do"))(**asked) or {}
        except KafkaError as error:
            answer = {"error": error.message or type(error).__name__}
        print(json.dumps({"records": [], "held": []} | answer), flush=True)


asyncio.run(main())
