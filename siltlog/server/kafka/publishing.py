"""Produce and InitProducerId: records of Kafka's producers on their way into the log."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.batch import Rejected
from siltlog.infra.kafka.errors import KafkaError, kafka_error
from siltlog.ingest.publish.http import TIMEOUT_MS_MAX
from siltlog.ingest.publish.kafka.produce import PartitionBatch, Produce
from siltlog.ingest.publish.kafka.producer_ids import new_producer_id
from siltlog.ingest.publish.publishing import Acks
from siltlog.server.kafka.call import Answer, Call, Waited
from siltlog.server.kafka.connection import Ended
from siltlog.server.kafka.leaders import Leaders, current_leader, endpoints
from siltlog.server.kafka.topic_ids import TopicIds
from siltlog.server.kafka.turns import Turns

_ACKS: dict[int, Acks | None] = {0: "none", 1: "wal", -1: None}
"""What a producer asks for, as ours; None is what the topic has."""
_OPERATION = "publish"
"""What is recorded of a publish that is refused, whatever the protocol."""
TOPIC_ID_SINCE = 13
_RECORD_CODES = (KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP)


class Publishes:
    def __init__(self, produce: Produce, ids: TopicIds, leaders: Leaders, request_bytes: Callable[[], int]) -> None:
        self._produce = produce
        self._leaders = leaders
        self._ids = ids
        self._request_bytes = request_bytes

    async def produce(self, call: Call) -> Answer:
        body, asked = call.body, call.body["acks"]
        batches = await self._batches(call)
        if asked not in _ACKS:
            error = Rejected(KafkaError.INVALID_REQUIRED_ACKS, f"acks is {asked}: send 0, 1 or -1")
            for batch in batches:
                batch.error = error
        elif body["transactional_id"] is not None:
            error = Rejected(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "there are no transactions here")
            for batch in batches:
                batch.error = error
        timeout_ms = min(max(body["timeout_ms"], 1), TIMEOUT_MS_MAX)
        await self._charge(call, batches, timeout_ms)
        inflated = await self._produce.read(batches, self._request_bytes())
        try:
            call.held.take(inflated)
        except SiltlogError as full:
            for batch in batches:
                batch.error = batch.error or full
        await self._produce.append(batches, _ACKS.get(asked))
        # The log counts what it keeps.
        call.held.release()
        return Waited(self._answered(call, batches, asked, timeout_ms))

    async def init_producer_id(self, call: Call) -> Answer:
        if call.body["transactional_id"] is not None:
            return {
                "error_code": KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "producer_id": -1,
                "producer_epoch": -1,
            }
        return {"producer_id": new_producer_id(secrets.token_bytes), "producer_epoch": 0}

    async def _batches(self, call: Call) -> list[PartitionBatch]:
        found, turns = [], Turns()
        topics = call.body["topic_data"]
        has_ids = call.version >= TOPIC_ID_SINCE
        known = self._ids.names(topic["topic_id"] for topic in topics) if has_ids else {}
        for topic in topics:
            error: Exception | None = None
            denied = False
            name = topic["name"]
            if has_ids:
                name = known.get(topic["topic_id"], "")
                if not name:
                    error = Rejected(KafkaError.UNKNOWN_TOPIC_ID, "there is no topic with this id")
            if error is None:
                error = _refusal(call, name)
                if error is not None:
                    denied = True
                elif not self._leads(name):
                    error = Rejected(KafkaError.NOT_LEADER_OR_FOLLOWER, f"another node leads the topic {name}")
            if turns.is_over():
                await asyncio.sleep(0)
            for part in topic["partition_data"]:
                # Taken out: the fields are there until the answer, and the frame need not be.
                records = part.pop("records")
                # Nothing of it is looked at: who may not write could say something about another's sequences.
                found.append(PartitionBatch(name, part["index"], None if denied else records, error))
                if turns.is_over():
                    await asyncio.sleep(0)
        return found

    def _leads(self, topic: str) -> bool:
        """Whether records of a topic are taken here, or refused whoever owns it."""
        return names.is_system_topic(topic) or self._leaders.leads(topic)

    async def _charge(self, call: Call, batches: Sequence[PartitionBatch], timeout_ms: int) -> None:
        by_topic: dict[str, list[PartitionBatch]] = {}
        for batch in batches:
            if batch.error is None:
                by_topic.setdefault(batch.topic, []).append(batch)
        # The client waits for all of them together.
        now = asyncio.get_running_loop().time
        until = now() + timeout_ms / 1000
        turns = Turns()
        for topic, its in by_topic.items():
            taken = sum(len(batch.records or b"") for batch in its)
            try:
                await call.session.charged_publish(topic, taken, until - now())
            except SiltlogError as error:
                for batch in its:
                    batch.error = error
            if turns.is_over():
                await asyncio.sleep(0)
        for topic, its in by_topic.items():
            # Who waited, for the quota of any of them, may have lost the right to it.
            if (refused := _refusal(call, topic)) is not None:
                for batch in its:
                    batch.error, batch.records = refused, None
            if turns.is_over():
                await asyncio.sleep(0)

    async def _answered(
        self, call: Call, batches: Sequence[PartitionBatch], acks: int, timeout_ms: int
    ) -> Mapping[str, Any] | None:
        # Who asked for no answer may be gone, and an error would keep what he sent behind it from being taken.
        hang_up = call.session.connection.hang_up if acks else None
        await self._produce.acknowledged(batches, timeout_ms, hang_up)
        if acks == 0:
            if any(batch.error is not None for batch in batches):
                # Nobody waits for an answer: the end of the connection is how a client learns of it.
                raise Ended("refused")
            return None
        responses, at, turns = [], 0, Turns()
        retry_ms = 0
        for topic in call.body["topic_data"]:
            parts = batches[at : at + len(topic["partition_data"])]
            at += len(parts)
            if turns.is_over():
                await asyncio.sleep(0)
            retry_ms = max([retry_ms, *(_retry_ms(batch.error) for batch in parts)])
            answers = []
            for batch in parts:
                answers.append(self._answer(batch))
                if turns.is_over():
                    await asyncio.sleep(0)
            responses.append({"name": topic["name"], "topic_id": topic["topic_id"], "partition_responses": answers})
        told = (part for topic in responses for part in topic["partition_responses"])
        return {
            "responses": responses,
            "throttle_time_ms": retry_ms,
            "node_endpoints": endpoints(self._leaders, told, call.session.connection.own_address),
        }

    def _answer(self, batch: PartitionBatch) -> dict[str, Any]:
        answer = _answer(batch)
        if answer["error_code"] == KafkaError.NOT_LEADER_OR_FOLLOWER:
            answer |= current_leader(self._leaders, batch.topic)
        return answer


def _refusal(call: Call, topic: str) -> Rejected | None:
    """Why its caller may not write to a topic. Raises Ended where the login has ended."""
    refusal = call.session.refusal(_OPERATION, "write", topic)
    if refusal is None:
        return None
    told = call.session.without_name(refusal, topic) if call.version >= TOPIC_ID_SINCE else refusal.detail
    return Rejected(kafka_error(refusal), told)


def _answer(batch: PartitionBatch) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "index": batch.partition,
        "error_code": KafkaError.NONE,
        "base_offset": batch.base_offset,
        "log_start_offset": batch.log_start_offset,
    }
    if batch.error is not None:
        code, sentence = _code_of(batch.error)
        answer |= {"error_code": code, "error_message": sentence, "base_offset": -1}
        index = _index_of(batch.error)
        if index is not None and code in _RECORD_CODES:
            answer["record_errors"] = [{"batch_index": index, "batch_index_error_message": sentence}]
    return answer


def _code_of(error: Exception) -> tuple[KafkaError, str]:
    if isinstance(error, Rejected):
        return error.code, error.detail
    known = cast(SiltlogError, error)
    return kafka_error(known), known.detail


def _index_of(error: Exception) -> int | None:
    """The number of the record that is wrong, where it is one's fault."""
    if isinstance(error, Rejected):
        return error.index
    return cast(SiltlogError, error).members.get("index")


def _retry_ms(error: Exception | None) -> int:
    return (error.retry_after_ms or 0) if isinstance(error, SiltlogError) else 0
