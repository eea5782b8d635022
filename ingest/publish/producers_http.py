"""`/v1/topics/{topic}/producers/{producer}`: claim a producer's next epoch, or ask where it stopped."""

from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra import names
from siltlog.infra.errors import problem
from siltlog.infra.http.operations import TOPIC, in_path, json_answer, on_topic, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import json_reply
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.producer_objects import StateWriter
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.publish.answers import ProducerPartition, ProducerState

_PRODUCER = in_path("producer", "The producer's id, which its client chose: a UUID needs nothing more.")
_PRODUCER_TEXT = "It comes with the next sequence of every partition that this producer has published to."


SHIP_SECONDS_MAX = 10.0
"""How long an answer waits until a next owner would know what it says."""


class ProducersHttp:
    def __init__(self, log: Log, states: StateWriter) -> None:
        self._log = log
        self._states = states

    @operation(
        "POST",
        "/v1/topics/{topic}/producers/{producer}",
        "claimProducer",
        "Publish",
        "Claim a producer's next epoch",
        "The epoch is durable before the reply, and fences requests with an older one, also those still under way. "
        + _PRODUCER_TEXT,
        access=on_topic("write"),
        at_owner="yes",
        replies={200: json_answer("The claimed epoch.", ProducerState)},
        parameters=(TOPIC, _PRODUCER),
        errors=(
            *(
                "unknown_topic",
                "forbidden",
                "fenced_producer",
                "invalid_request",
                "request_timeout",
                "request_too_large",
            ),
            *("wal_full", "shutting_down", "topic_unavailable", "store_denied", "disk_full", "ack_timeout"),
        ),
    )
    async def claim(self, request: Request) -> Response:
        topic, producer_id = self._named(request)
        if topic.system:
            raise problem("forbidden", f"the topic {topic.name} is the system's: it has no producers of users")
        if topic.paused is not None:
            await topic.resumed(SHIP_SECONDS_MAX)
        epoch = await self._log.claim_producer(topic, producer_id)
        if topic.ships:
            await self._log.in_table(topic, SHIP_SECONDS_MAX)
            await self._states.ship_epochs(topic, SHIP_SECONDS_MAX)
        else:
            await self._states.store_epochs(topic)
        # What an older epoch had sequenced before was made durable with the claim, and nothing of it comes after.
        return json_reply(_state_of(topic, producer_id, epoch))

    @operation(
        "GET",
        "/v1/topics/{topic}/producers/{producer}",
        "describeProducer",
        "Publish",
        "Where a producer stopped",
        f"Changes nothing. {_PRODUCER_TEXT}",
        access=on_topic("describe"),
        at_owner="yes",
        replies={200: json_answer("What is known of it.", ProducerState)},
        parameters=(TOPIC, _PRODUCER),
        errors=("unknown_topic", "topic_unavailable", "store_denied"),
    )
    async def describe(self, request: Request) -> Response:
        topic, producer_id = self._named(request)
        state = _state_of(topic, producer_id, _epoch(topic, producer_id))
        # A sequence must not be named as seen before it is sure to be there after a crash.
        await self._log.group_commit.commit()
        await self._log.landed(topic)
        if topic.ships:
            await self._log.in_table(topic, SHIP_SECONDS_MAX)
        return json_reply(state)

    def _named(self, request: Request) -> tuple[TopicLog, str]:
        Query(request, ())
        topic = self._log.topic(request.path_params["topic"])
        producer_id: str = request.path_params["producer"]
        wrong = names.name_problem(producer_id)
        if wrong is not None:
            raise problem("invalid_parameter", f"the producer's id: {wrong}", parameter="producer")
        return topic, producer_id


def _epoch(topic: TopicLog, producer_id: str) -> int:
    used = max(log.sequencer.epoch_of(producer_id) for log in topic.partitions)
    return max(used, topic.producers.epochs.epoch(producer_id))


def _state_of(topic: TopicLog, producer_id: str, epoch: int) -> ProducerState:
    """Only the partitions in which the producer is known; in every other it goes on from 0."""
    partitions = []
    for log in topic.partitions:
        end = log.sequencer.end_of(producer_id)
        if end is not None:
            next_sequence = log.sequencer.next_sequence(producer_id)
            partitions.append(ProducerPartition(log.partition, next_sequence, end - 1))
    return ProducerState(producer_id, epoch, partitions)
