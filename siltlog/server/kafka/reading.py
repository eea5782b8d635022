"""Fetch, ListOffsets and OffsetForLeaderEpoch: records and offsets for Kafka's consumers."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from siltlog.consumers.kafka.fetch import Asked, Fetched, KafkaFetch
from siltlog.consumers.kafka.offsets import KafkaOffsets
from siltlog.consumers.kafka.sessions import NO_SESSION, Part, SessionRefused, Wish
from siltlog.consumers.reading.fetch import FetchPosition, require_read
from siltlog.consumers.reading.http import ReadLimits
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.compression import CODECS, ZSTD
from siltlog.infra.kafka.errors import KafkaError, kafka_error
from siltlog.infra.limits import TURN_ITEMS
from siltlog.server.kafka.call import Answer, Call
from siltlog.server.kafka.connection import Ended
from siltlog.server.kafka.leaders import Leaders, current_leader, endpoints
from siltlog.server.kafka.session import slowed
from siltlog.server.kafka.topic_ids import TopicIds
from siltlog.server.kafka.turns import Turns

TOPIC_ID_SINCE = 13
ZSTD_SINCE = 10
"""Readers of older versions may not know it (KIP-110)."""


class Reads:
    """Used on one event loop."""

    def __init__(
        self,
        ids: TopicIds,
        fetch: KafkaFetch,
        offsets: KafkaOffsets,
        leaders: Leaders,
        limits: ReadLimits,
        draining: Callable[[], bool],
    ) -> None:
        self._fetch = fetch
        self._offsets = offsets
        self._ids = ids
        self._leaders = leaders
        self._limits = limits
        self._draining = draining

    async def fetch(self, call: Call) -> Answer:
        body, by_id = call.body, call.version >= TOPIC_ID_SINCE
        wishes = await _wishes(body)
        try:
            turn = call.session.fetches.begin(
                body["session_id"], body["session_epoch"], wishes, _forgotten(body), by_id=by_id
            )
        except SessionRefused as refused:
            return {"error_code": refused.code, "session_id": NO_SESSION, "responses": []}
        slots = await self._slots(call, turn.wishes, by_id=by_id)
        asked = [slot for slot in slots.values() if isinstance(slot, Asked)]
        found: Iterator[Fetched] = iter(())
        if asked or not slots:
            found = iter(await self._fetched(call, asked, wait=len(asked) == len(slots)))
        topics: dict[tuple[str, bytes], list[dict[str, Any]]] = {}
        for number, (part, slot) in enumerate(slots.items(), 1):
            if number % TURN_ITEMS == 0:
                await asyncio.sleep(0)
            answer = _fetched_answer(next(found)) if isinstance(slot, Asked) else slot
            bounds = answer["high_watermark"], answer.get("log_start_offset", -1)
            if turn.is_news(part, bounds, has_records=bool(answer["records"]), failed=bool(answer["error_code"])):
                topics.setdefault(part[:2], []).append(answer)
        responses = [
            {"topic": name, "topic_id": topic_id, "partitions": answers} for (name, topic_id), answers in topics.items()
        ]
        at_leaders = self._at_leaders(responses, call.session.connection.own_address)
        return {"session_id": turn.session_id, "responses": responses, "node_endpoints": at_leaders}

    def _at_leaders(
        self, responses: Sequence[Mapping[str, Any]], reached: tuple[str, int]
    ) -> Sequence[Mapping[str, Any]]:
        """Has an answer say who leads what this node does not; gives where those are."""
        parts = [(topic, part) for topic in responses for part in topic["partitions"]]
        elsewhere = [pair for pair in parts if pair[1]["error_code"] == KafkaError.NOT_LEADER_OR_FOLLOWER]
        if not elsewhere:
            return ()
        known = self._ids.names(topic["topic_id"] for topic, _ in elsewhere if not topic["topic"])
        for topic, part in elsewhere:
            name = topic["topic"] or known.get(topic["topic_id"])
            if name is not None:
                part |= current_leader(self._leaders, name)
        return endpoints(self._leaders, (part for _, part in elsewhere), reached)

    async def _slots(
        self, call: Call, wishes: Mapping[Part, Wish], *, by_id: bool
    ) -> dict[Part, Asked | dict[str, Any]]:
        """What is read of each partition, or the answer where that is refused."""
        known = self._ids.names(part.topic_id for part in wishes) if by_id else {}
        refusals: dict[str, KafkaError] = {}
        slots: dict[Part, Asked | dict[str, Any]] = {}
        for number, (part, wish) in enumerate(wishes.items(), 1):
            if number % TURN_ITEMS == 0:
                await asyncio.sleep(0)
            name = known.get(part.topic_id, "") if by_id else part.topic
            if by_id and not name:
                slots[part] = _error_answer(part.partition, KafkaError.UNKNOWN_TOPIC_ID)
                continue
            if name not in refusals:
                refusals[name] = self._refusal(call, name)
            if refusals[name]:
                slots[part] = _error_answer(part.partition, refusals[name])
                continue
            position = FetchPosition(name, part.partition, wish.offset, max(wish.bytes_max, 1))
            slots[part] = Asked(position, wish.leader_epoch)
        return slots

    def _refusal(self, call: Call, topic: str) -> KafkaError:
        refusal = call.session.refusal("fetch", "read", topic)
        if refusal is None:
            try:
                # Dead letters are records of their topic.
                require_read(call.session.granted, topic)
            except SiltlogError as error:
                refusal = error
        return KafkaError.NONE if refusal is None else kafka_error(refusal)

    async def _fetched(self, call: Call, asked: Sequence[Asked], *, wait: bool) -> Sequence[Fetched]:
        body, limits = call.body, self._limits
        max_bytes = min(max(body["max_bytes"], 1), limits.bytes)
        while True:
            try:
                meter = await call.session.charged(reads=True)
                found = await self._fetch.fetch(
                    asked,
                    max_bytes=max_bytes,
                    min_bytes=min(max(body["min_bytes"], 0), max_bytes),
                    wait_ms=min(max(body["max_wait_ms"], 0), limits.wait_ms) if wait else 0,
                    held=call.held,
                    grant=call.session.granted,
                    meter=meter,
                    codecs=CODECS if call.version >= ZSTD_SINCE else CODECS - {ZSTD},
                )
            except SiltlogError as error:
                if self._draining():
                    raise Ended("draining") from None
                if error.error_code == "unauthenticated":
                    raise Ended("unauthenticated") from None
                await slowed(error)
                continue
            if meter is not None:
                meter.read(sum(len(piece) for each in found for piece in each.records))
            return found

    async def list_offsets(self, call: Call) -> Answer:
        topics, turns = [], Turns()
        async for topic in turns.over(call.body["topics"]):
            name = topic["name"]
            refusal = call.session.refusal("listOffsets", "describe", name)
            parts = []
            async for part in turns.over(topic["partitions"]):
                answer: dict[str, Any] = {"partition_index": part["partition_index"]}
                if refusal is not None:
                    answer["error_code"] = kafka_error(refusal)
                else:
                    answer |= await self._listed(name, part)
                parts.append(answer)
            topics.append({"name": name, "partitions": parts})
        return {"topics": topics}

    async def _listed(self, topic: str, part: Mapping[str, Any]) -> dict[str, Any]:
        error = self._fetch.check_leader(topic, part["partition_index"], part["current_leader_epoch"])
        if error:
            return {"error_code": error}
        found = await self._offsets.offset(topic, part["partition_index"], part["timestamp"])
        epoch = self._offsets.leader_epoch(topic) if found.offset >= 0 else -1
        told = {"offset": found.offset, "timestamp": found.timestamp_ms, "leader_epoch": epoch}
        return {"error_code": found.error, **told}

    async def offset_for_leader_epoch(self, call: Call) -> Answer:
        topics, turns = [], Turns()
        async for topic in turns.over(call.body["topics"]):
            name = topic["topic"]
            refusal = call.session.refusal("listOffsets", "describe", name)
            parts = []
            async for part in turns.over(topic["partitions"]):
                answer: dict[str, Any] = {"partition": part["partition"]}
                error = KafkaError.NONE if refusal is None else kafka_error(refusal)
                if not error:
                    error = self._fetch.check_leader(name, part["partition"], part["current_leader_epoch"])
                if not error:
                    end = await self._offsets.end(name, part["partition"])
                    answer |= {"leader_epoch": part["leader_epoch"], "end_offset": end.offset}
                    error = end.error
                parts.append({**answer, "error_code": error})
            topics.append({"topic": name, "partitions": parts})
        return {"topics": topics}


async def _wishes(body: Mapping[str, Any]) -> dict[Part, Wish]:
    wishes: dict[Part, Wish] = {}
    turns = Turns()
    for topic in body["topics"]:
        for part in topic["partitions"]:
            wishes[Part(topic["topic"], topic["topic_id"], part["partition"])] = Wish(
                part["fetch_offset"], part["partition_max_bytes"], part["current_leader_epoch"]
            )
            if turns.is_over():
                await asyncio.sleep(0)
        if turns.is_over():
            await asyncio.sleep(0)
    return wishes


def _forgotten(body: Mapping[str, Any]) -> Iterator[Part]:
    for topic in body["forgotten_topics_data"]:
        for partition in topic["partitions"]:
            yield Part(topic["topic"], topic["topic_id"], partition)


def _fetched_answer(found: Fetched) -> dict[str, Any]:
    bounds = found.bounds
    return {
        "partition_index": found.asked.position.partition,
        "error_code": found.error,
        "high_watermark": -1 if bounds is None else bounds.high_watermark,
        # Nothing is ever in a transaction.
        "last_stable_offset": -1 if bounds is None else bounds.high_watermark,
        "log_start_offset": -1 if bounds is None else bounds.log_start_offset,
        "aborted_transactions": None,
        "records": list(found.records),
    }


def _error_answer(partition: int, error: KafkaError) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "error_code": error,
        "high_watermark": -1,
        "aborted_transactions": None,
        "records": b"",
    }
