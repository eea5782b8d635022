"""The publishing of one topic: what to send next, and when. No IO, no clock.

Several requests may be under way, but of each partition only one: so order holds and sequences stay contiguous without
a word between requests. A retry is the same request, byte for byte. What answers mean is in `answers.py`.
"""

import threading
from collections.abc import Callable

from siltlog.infra.client.core import NODE_TIMEOUT_MS, Response, json_request
from siltlog.infra.errors import SiltlogError, Unavailable
from siltlog.ingest.library.answers import Answers
from siltlog.ingest.library.batch import Batch
from siltlog.ingest.library.options import PublishOptions
from siltlog.ingest.library.placer import Limits, Placer
from siltlog.ingest.library.request import Lookup, PublishRequest, Step

REQUESTS_MAX = 4
"""Requests of one topic at a time."""
YOUNG_REQUESTS_MAX = 2
"""How many requests may be under way before a batch that is not full waits: records gather by themselves meanwhile."""


class TopicLane:
    """`due`, `not_before`, `ending`, `idle` and `wants` may be asked at any time; for the rest callers hold `lock`."""

    def __init__(self, topic: str, options: PublishOptions, limits: Limits, jitter: Callable[[], float]) -> None:
        self.topic = topic
        self.lock = threading.Lock()
        self.ending = False
        self.not_before = 0.0
        """No new request before; what is sent again has its own time."""
        self.due: float | None = None
        """When `next_step` has something to do, beside a batch that it was not given yet."""
        self.idle = True
        self.waits = False
        """Whether its next question waits for one node for as long as it may: the one before left a node that said
        nothing for NODE_TIMEOUT_MS, and what takes long at any node must be answered at some time."""
        self._options = options
        self._limits = limits
        self._placer = Placer(topic, limits, jitter)
        self._answers = Answers(topic, self._placer, limits, jitter)
        self._given: Batch | None = None
        self._finished: list[Batch] = []
        self._busy: set[int] = set()
        self._lookup: Lookup | None = None
        self._waiting = False

    def wants(self, batch: Batch) -> bool:
        """Whether it has a use for the batch now; what it has no use for yet may go on growing."""
        if self._given is not None or self._waiting:
            return False
        answers = self._answers
        requests = len(answers.requests)
        if not requests or self.ending:
            return True
        if requests >= REQUESTS_MAX or answers.claiming or answers.placed_by is None:
            return False
        if batch.placed:
            return batch.full
        return len(self._busy) < answers.placed_by.partitions and (batch.full or requests < YOUNG_REQUESTS_MAX)

    def give(self, batch: Batch) -> None:
        self._given = batch
        self.idle = False

    def end(self) -> None:
        """Fails all that is not on its way; what is on its way gets no other attempt."""
        self.ending = True
        if not self.idle:
            self.due = 0.0

    def take_finished(self) -> list[Batch]:
        """The batches every row of which is decided."""
        finished, self._finished = self._finished, []
        return finished

    def next_step(self, now: float) -> Step | None:
        """Says what to send next; None when there is nothing (`resolve` is not called then)."""
        try:
            if self._given is not None:
                batch, self._given = self._given, None
                self._placer.batches.append(batch)
                batch.start_sending()
            self._expire(now)
            return self._lookup_step(now) or self._retry_step(now) or self._new_step(now)
        finally:
            self._settle_schedule()

    def resolve(self, step: Step, result: Response | SiltlogError, now: float) -> None:
        """Takes what came of a step."""
        try:
            if step.publish is None:
                self._lookup = None
            elif step.publish in self._answers.requests:
                step.publish.under_way = False
            else:
                return
            self._answers.take(step, result, now)
        finally:
            self._settle_schedule()

    def abandon(self, error: SiltlogError) -> None:
        """Fails all there is, which may have arrived."""
        for request in list(self._answers.requests):
            self._answers.doubt(request, error)
        self._placer.fail_waiting(self._placer.batches, error)
        self._settle_schedule()

    def _settle_schedule(self) -> None:
        """Brings what others read up to date: finished batches, and when there is something to do."""
        answers, placer = self._answers, self._placer
        self._finished += placer.take_finished()
        self._busy = {number for request in answers.requests for number in request.placement.counts}
        self._waiting = bool(placer.waiting())
        self.idle = not placer.batches
        if not answers.requests and self._lookup != "claim":
            answers.end_claim()
        self.not_before = answers.not_before
        self.due = self._next_due()

    def _next_due(self) -> float | None:
        waiting = [request for request in self._answers.requests if not request.under_way]
        if not waiting and not self._waiting:
            return None
        if self.ending:
            return 0.0
        held = [request.batch for request in waiting] + self._placer.waiting()
        dues = [batch.created + self._options.delivery_timeout_ms / 1000 for batch in held]
        dues += [request.not_before for request in waiting if request.refusal is None]
        may_send = self._waiting and not self._answers.claiming and self._may_send()
        if self._lookup is None and (may_send or self._wanted_lookup() is not None):
            dues.append(self.not_before)
        return min(dues)

    def _wanted_lookup(self) -> Lookup | None:
        answers = self._answers
        if answers.claiming:
            return "claim" if all(request.refusal is not None for request in answers.requests) else None
        if answers.placed_by is None:
            return "topic" if self._waiting else None
        return "limits" if self._waiting and not self._limits.known and not answers.requests else None

    def _lookup_step(self, now: float) -> Step | None:
        if self._lookup is not None or now < self._answers.not_before:
            return None
        self._waiting = bool(self._placer.waiting())
        self._lookup = self._wanted_lookup()
        if self._lookup == "topic":
            request = json_request("GET", f"/v1/topics/{self.topic}")
        elif self._lookup == "limits":
            request = json_request("GET", "/v1/cluster")
        elif self._lookup == "claim":
            path = self._answers.identity.claim_path(self.topic)
            request = json_request("POST", path, repeatable=True, node_timeout_ms=NODE_TIMEOUT_MS)
        else:
            return None
        return Step(request, lookup=self._lookup, identity=self._answers.identity)

    def _retry_step(self, now: float) -> Step | None:
        for request in self._answers.requests:
            if not request.under_way and request.refusal is None and request.not_before <= now:
                return self._send(request, now)
        return None

    def _new_step(self, now: float) -> Step | None:
        answers, placer = self._answers, self._placer
        if answers.placed_by is None or self._lookup is not None or answers.claiming or now < answers.not_before:
            return None
        if placer.placed is None and self._may_send():
            placer.place_next(answers.placed_by, self._busy, checked=not answers.guessed)
        if placer.placed is None or not self._may_send():
            return None
        request = PublishRequest.of(placer.placed, answers.placed_by, answers.identity, self._options.compression)
        placer.take_placed()
        answers.requests.append(request)
        return self._send(request, now)

    def _send(self, request: PublishRequest, now: float) -> Step:
        request.under_way = True
        return Step(request.http(self._options, self._remaining_ms(request.batch, now)), request)

    def _may_send(self) -> bool:
        """Whether the next rows may go beside what is under way."""
        requests, by = self._answers.requests, self._answers.placed_by
        if len(requests) >= REQUESTS_MAX or by is None:
            return False
        if any(request.placed_by != by for request in requests):
            # The same key may be on its way to another partition.
            return False
        if self._placer.placed is not None:
            return self._busy.isdisjoint(self._placer.placed.placement.counts)
        return len(self._busy) < by.partitions or not requests

    def _remaining_ms(self, batch: Batch, now: float) -> float:
        return self._options.delivery_timeout_ms - (now - batch.created) * 1000

    def _expire(self, now: float) -> None:
        """Fails what was not delivered in `delivery_timeout_ms`, or before the producer was closed with less time."""
        if self._answers.fenced is not None:
            self._placer.fail_waiting(self._placer.batches, self._answers.fenced)
        late = [batch for batch in self._placer.batches if self.ending or self._remaining_ms(batch, now) <= 0]
        if not late:
            return
        limit = "until the producer was closed" if self.ending else f"within {self._options.delivery_timeout_ms} ms"
        last = f"; the last attempt: {self._answers.last_error.detail}" if self._answers.last_error is not None else ""
        error = Unavailable(
            f"not delivered {limit}, and nothing of it arrived{last}", error_code="delivery_timeout", retryable="yes"
        )
        for request in [
            request for request in self._answers.requests if request.batch in late and not request.under_way
        ]:
            self._answers.end(request, (request.maybe_landed and self._answers.last_error) or error)
        self._placer.fail_waiting(late, error)
        self._answers.forget_backoff()
