"""A player by aiokafka: it answers each line of JSON that it is asked with one."""

import asyncio
import json
import ssl
import sys
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
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


class Token(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def named(bootstrap: str, login: dict[str, str]) -> dict[str, Any]:
    """What any client needs to know."""
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap}
    if login:
        settings |= {"security_protocol": "SASL_SSL", "ssl_context": ssl.create_default_context(cafile=login["ca"])}
    if "user" in login:
        settings |= {"sasl_plain_username": login["user"], "sasl_plain_password": login["password"]}
    if "token" in login:
        settings |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Token(login["token"])}
    return settings


class Player:
    def __init__(self, bootstrap: str, login: dict[str, str]) -> None:
        self.settings = named(bootstrap, login)
        self.members: dict[str, AIOKafkaConsumer] = {}

    async def create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        admin = AIOKafkaAdminClient(**self.settings)
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
            **self.settings,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
            request_timeout_ms=15_000,
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
        consumer = AIOKafkaConsumer(**self.settings, auto_offset_reset="earliest", enable_auto_commit=False)
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
            **self.settings,
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

    async def reset(self, group: str, topic: str, offsets: dict[str, int]) -> None:
        """Its admin client sets no offsets; a consumer that is no member does."""
        consumer = AIOKafkaConsumer(**self.settings, group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            parts = {TopicPartition(topic, int(number)): offset for number, offset in offsets.items()}
            consumer.assign(list(parts))
            await consumer.commit(parts)
        finally:
            await consumer.stop()


async def main() -> None:
    player = Player(sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {})
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        try:
            answer = await getattr(player, asked.pop("do"))(**asked) or {}
        except KafkaError as error:
            answer = {"error": getattr(error, "message", None) or type(error).__name__}
        print(json.dumps({"records": [], "held": []} | answer), flush=True)


asyncio.run(main())
