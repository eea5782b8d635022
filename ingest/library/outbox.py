"""The core of both producers: it takes records from `send` to their outcome. No IO.

Steps of a lane are made under the lane's lock, because making a body takes time; all else under the owner's.
"""

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass

from siltlog.infra.client.core import ConnectionFailed, Response
from siltlog.infra.client.endpoints import Endpoints, Send
from siltlog.infra.client.retries import failure_of, was_left
from siltlog.infra.clock import Clock
from siltlog.infra.errors import OutcomeUnknown
from siltlog.infra.tracing.opening import open_sending
from siltlog.ingest.library.accumulator import Accumulator
from siltlog.ingest.library.batch import Batch, Failed, Owner
from siltlog.ingest.library.delivery import FailureLedger
from siltlog.ingest.library.metrics import ProducerCounts, ProducerMetrics
from siltlog.ingest.library.options import PublishOptions
from siltlog.ingest.library.request import Step
from siltlog.ingest.library.topic_lane import TopicLane
from siltlog.ingest.library.traced import TracedAccumulator

_log = logging.getLogger("siltlog.producer")


@dataclass(frozen=True, slots=True, eq=False)
class Departure:
    """A request on its way: where to, and since when."""

    lane: TopicLane
    step: Step
    send: Send
    started: float


class Outbox:
    def __init__(
        self,
        endpoints: Endpoints,
        options: PublishOptions,
        clock: Clock,
        owner: Owner,
        batch_type: type[Batch] = Batch,
    ) -> None:
        jitter = random.Random().random  # noqa: S311
        sending = open_sending()
        self.accumulator = (
            Accumulator(options, owner, jitter, batch_type)
            if sending is None
            else TracedAccumulator(options, owner, jitter, batch_type, sending)
        )
        self.ledger = FailureLedger(options.buffer_bytes)
        self._counts = ProducerCounts()
        self._endpoints = endpoints
        self._clock = clock
        self._owner = owner

    def depart(self, lane: TopicLane) -> Departure | None:
        """The next request of a lane that was taken, which is given back; None when it has none to send now."""
        now = self._clock.monotonic()
        step = None
        with lane.lock:
            try:
                step = lane.next_step(now)
            except Exception as error:
                _abandon(lane, error)
            finished = lane.take_finished()
        with self._owner.lock:
            self.accumulator.give_back(lane)
            if step is not None and step.publish is not None:
                self._counts.sent(sum(len(piece) for piece in step.publish.body))
            self._bookkeep(lane, finished)
        for batch in finished:
            batch.finish()
        if step is None:
            return None
        hasty = step.publish is None and not lane.waits
        return Departure(lane, step, self._endpoints.send(step.request, hasty=hasty), now)

    def arrive(self, departure: Departure, result: Response | ConnectionFailed) -> None:
        """Takes what came of a request."""
        lane, step = departure.lane, departure.step
        now = self._clock.monotonic()
        error = failure_of(result, departure.send.url, step.request, self._endpoints)
        with lane.lock:
            if step.publish is None:
                lane.waits = was_left(departure.send, step.request, result)
            try:
                assert error is not None or isinstance(result, Response)
                lane.resolve(step, result if error is None else error, now)  # type: ignore[arg-type]
            except Exception as defect:
                _abandon(lane, defect)
            finished = lane.take_finished()
        with self._owner.lock:
            if step.publish is not None:
                self._counts.answered(now - departure.started, error is None)
            self._bookkeep(lane, finished)
        for batch in finished:
            batch.finish()

    def metrics(self) -> ProducerMetrics:
        """The owner's lock is held."""
        buffered = sum(batch.count for batch in self.accumulator.unfinished)
        return self._counts.snapshot(buffered, self.accumulator.used_bytes)

    def _bookkeep(self, lane: TopicLane, finished: Sequence[Batch]) -> None:
        for batch in finished:
            failed = sum(part.stop - part.start for part in batch.outcomes if isinstance(part, Failed))
            self._counts.decided(batch.count - failed, failed)
            if failed:
                self.ledger.add(batch)
            self.accumulator.finished(batch)
        self.accumulator.rest(lane)
        self._owner.changed(bool(finished))


def _abandon(lane: TopicLane, error: Exception) -> None:
    _log.exception("sending to %s failed", lane.topic)
    lane.abandon(OutcomeUnknown(f"sending failed: {error!r}", error_code="internal"))
