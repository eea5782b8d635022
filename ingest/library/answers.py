"""What answers mean for the records of a topic: which landed, which wait again, and which failed. No IO, no clock.

What is refused has no effect, so its sequence numbers are used again. Where the server does not know them, the producer
id is claimed anew: that fences whatever is still under way, and says what arrived. What ends without a known outcome
may still arrive: publishing then goes on under a new producer id, as nobody can tell which sequence is next.
"""

import logging
from collections.abc import Callable

import msgspec

from siltlog.infra.arrow.partitioner import PARTITIONERS, XXHASH64, PlacedBy
from siltlog.infra.client.answers import Claimed
from siltlog.infra.client.bodies.arrow_body import placed_by
from siltlog.infra.client.core import Response, backoff_ms
from siltlog.infra.client.retries import FOLLOWED_MAX, Followed
from siltlog.infra.errors import ConfigError, OutcomeUnknown, SiltlogError, of_the_record
from siltlog.ingest.library.batch import Landed
from siltlog.ingest.library.placer import Limits, Placer
from siltlog.ingest.library.request import Identity, PublishRequest, Step

UNKNOWN_TOPIC_CODES = frozenset(("unknown_topic", "unknown_partition"))
BAD_RECORD_CODES = frozenset(("invalid_record", "record_too_large"))
CLAIMABLE_CODES = frozenset(("unknown_producer", "out_of_order_sequence"))
_log = logging.getLogger("siltlog.producer")
_CLAIMED = msgspec.json.Decoder(Claimed)


class Answers:
    """Owns what answers change: the requests under way, the producer's identity, what is known of the topic."""

    def __init__(self, topic: str, placer: Placer, limits: Limits, jitter: Callable[[], float]) -> None:
        self.requests: list[PublishRequest] = []
        """Requests that are not decided, in the order of their first sends."""
        self.placed_by: PlacedBy | None = None
        """How the topic places keys; None while it is not known."""
        self.guessed = False
        """Whether that is of a topic that publishing is to create."""
        self.identity = Identity()
        self.claiming = False
        self.fenced: SiltlogError | None = None
        self.not_before = 0.0
        """No new request before; what is sent again has its own time."""
        self.last_error: SiltlogError | None = None
        self._topic = topic
        self._placer = placer
        self._limits = limits
        self._jitter = jitter
        self._asked_before = 0.0
        self._claim_lost = False
        self._attempts = 0
        self._followed = 0
        """Nodes that were asked one after the other, without an answer to keep."""
        self._restarts = 0

    def take(self, step: Step, result: Response | SiltlogError, now: float) -> None:
        """Takes what came of a step."""
        if isinstance(result, Response):
            try:
                self._succeeded(step, result, now)
            except (msgspec.MsgspecError, OutcomeUnknown, KeyError, TypeError, ValueError) as error:
                result = OutcomeUnknown(f"the server's reply is not understood: {error}", error_code="internal")
            except ConfigError as error:
                result = error
        if isinstance(result, SiltlogError):
            self._failed(step, result, now)
        else:
            self._attempts = self._followed = 0

    def end_claim(self) -> None:
        """There is nothing left to claim for."""
        self.claiming = False
        self._leave_lost_claim()

    def forget_backoff(self) -> None:
        """Lets the next rows go without the back-off of what has failed; what the server asked for still holds."""
        self.not_before, self.last_error = min(self.not_before, self._asked_before), None

    def _succeeded(self, step: Step, response: Response, now: float) -> None:
        if step.publish is not None:
            self._landed(step.publish, step.publish.landed(response.body))
            self.guessed = False
            self._restarts = 0
        elif step.lookup == "topic":
            self.placed_by, self.guessed = placed_by(response.json()), False
        elif step.lookup == "limits":
            self._limits.learn(response.json())
        elif step.identity is self.identity:
            self._claimed(_CLAIMED.decode(response.body), now)
        else:
            self.claiming = False

    def _landed(self, request: PublishRequest, outcome: Landed) -> None:
        request.batch.landed(outcome)
        for number, count in request.placement.counts.items():
            request.identity.sequences[number] = request.sequences[number] + count
        self._remove(request)

    def _claimed(self, claimed: Claimed, now: float) -> None:
        """The producer goes on where the server says that it stopped; nothing that is still under way can land."""
        parts = {part.partition: part for part in claimed.partitions}
        identity = self.identity
        self.claiming = False
        for request in list(self.requests):
            try:
                outcome = request.found(parts) if request.maybe_landed else None
            except OutcomeUnknown as mixed:
                self.doubt(request, mixed)
                continue
            refusal = request.refusal
            if outcome is not None:
                self._landed(request, outcome)
            elif refusal is None or refusal.error_code in CLAIMABLE_CODES:
                self._take_back(request)
            else:
                # No attempt arrived, and none can any more: the refusal stands for all of them.
                self._refused(request, refusal, now)
        identity.epoch = claimed.producer_epoch
        identity.sequences = {number: part.next_sequence for number, part in parts.items()}
        self._leave_lost_claim()

    def _leave_lost_claim(self) -> None:
        """A claim that got no answer may still arrive, and fence whatever goes on under the same id."""
        if self._claim_lost:
            self.identity, self._claim_lost = Identity(), False

    def _failed(self, step: Step, error: SiltlogError, now: float) -> None:
        self.last_error = error
        request = step.publish
        if error.retryable != "no":
            if error.retryable == "unknown" and request is not None:
                request.maybe_landed = True
            elif error.retryable == "unknown" and step.lookup == "claim":
                self._claim_lost = True
            self._pause(request, error, now)
        elif request is None:
            self._refused_lookup(step, error)
        elif error.error_code == "fenced_producer":
            # Somebody claimed this producer's id: it must not go on under any other.
            self.fenced = error
            self.end(request, error)
        elif error.error_code not in CLAIMABLE_CODES and not request.maybe_landed:
            self._refused(request, error, now)
        elif request.identity is self.identity:
            _log.warning("topic %s: claiming the producer's id: %s", self._topic, error.detail)
            self._restart(now)
            request.refusal = error
            self.claiming = True
        elif request.maybe_landed:
            self.doubt(request, error)
        else:
            self._take_back(request)

    def _pause(self, request: PublishRequest | None, error: SiltlogError, now: float) -> None:
        if isinstance(error, Followed) and self._followed < FOLLOWED_MAX:
            self._followed += 1
            return
        attempts = self._attempts if request is None else request.attempts
        until = now + backoff_ms(attempts, self._jitter(), error.retry_after_ms) / 1000
        self.not_before = max(self.not_before, until)
        if error.retry_after_ms is not None:
            self._asked_before = max(self._asked_before, now + error.retry_after_ms / 1000)
        if request is None:
            self._attempts += 1
        else:
            request.attempts += 1
            request.not_before = until

    def _restart(self, now: float) -> None:
        """Places the rows anew; a server that goes on refusing them is not asked in a tight loop."""
        self._placer.unplace()
        if self._restarts:
            self.not_before = max(self.not_before, now + backoff_ms(self._restarts - 1, self._jitter()) / 1000)
        self._restarts += 1

    def _refused_lookup(self, step: Step, error: SiltlogError) -> None:
        """Deals with a refused lookup: nothing can be sent, but for two cases.

        A server may create topics that are published to. It is then told a count, and answers with
        `partition_count_changed` and its own where that is another. And it may offer no claims.
        """
        if step.lookup == "claim":
            self.claiming = False
            if step.identity is self.identity:
                _log.warning("topic %s: the producer goes on under a new id: %s", self._topic, error.detail)
                self.identity = Identity()
            for request in list(self.requests):
                if request.maybe_landed:
                    self.doubt(request, error)
                else:
                    self._take_back(request)
        elif step.lookup == "topic" and error.error_code == "unknown_topic":
            self.placed_by, self.guessed = PlacedBy(1), True
        else:
            self._placer.fail_waiting(self._placer.batches, error)

    def _take_back(self, request: PublishRequest) -> None:
        """Nothing of it happened: its rows are placed anew."""
        self._give_back(request, (request.start, request.stop))

    def _give_back(self, request: PublishRequest, *ranges: tuple[int, int]) -> None:
        """Ends a request, of which these rows wait again."""
        self._remove(request)
        self._placer.give_back(request.batch, request.placement, *ranges)

    def _refused(self, request: PublishRequest, error: SiltlogError, now: float) -> None:
        """Nothing of it happened and the same again will not help; other rows of it, or placed anew, may be taken."""
        if error.error_code == "partition_count_changed" or (self.guessed and error.error_code == "unknown_partition"):
            self._restart(now)
            # A topic that publishing creates is not made before rows come that were placed by its count, so that there
            # may be none to look up yet.
            told = error.members
            known = isinstance(told.get("partitions"), int) and told.get("partitioner", XXHASH64.name) in PARTITIONERS
            self.placed_by, self.guessed = (placed_by(told) if known else None), False
            self._take_back(request)
            return
        batch, start, stop = request.batch, request.start, request.stop
        count = stop - start
        index = error.members.get("index")
        if error.error_code in UNKNOWN_TOPIC_CODES:
            self.placed_by = None
        if error.error_code == "request_too_large" and count > 1:
            middle = start + count // 2
            self._give_back(request, (start, middle), (middle, stop))
            self._limits.records = min(self._limits.records, max(1, count // 2))
        elif error.error_code in BAD_RECORD_CODES and isinstance(index, int) and 0 <= index < count and count > 1:
            order = request.placement.order
            row = start + (index if order is None else int(order[index]))
            error.detail = of_the_record(error)
            batch.failed(row, row + 1, error)
            self._give_back(request, (start, row), (row + 1, stop))
        else:
            if count == 1:
                error.detail = of_the_record(error)
            self._give_back(request)
            batch.failed(start, stop, error)

    def end(self, request: PublishRequest, error: SiltlogError) -> None:
        """Ends a request that is not under way."""
        if request.maybe_landed:
            self.doubt(request, error)
        else:
            self._remove(request)
            request.batch.failed(request.start, request.stop, error)

    def doubt(self, request: PublishRequest, error: SiltlogError) -> None:
        """Ends a request of which an attempt may have arrived."""
        self._remove(request)
        if request.identity is self.identity:
            self.identity = Identity()
        unknown = OutcomeUnknown(
            f"it may have arrived, or part of it: an attempt got no answer, and then: {error.detail}",
            error_code=error.error_code if error.retryable == "unknown" else "ack_timeout",
            status=error.status,
            request_id=error.request_id,
            members=error.members,
        )
        request.batch.failed(request.start, request.stop, unknown)

    def _remove(self, request: PublishRequest) -> None:
        self.requests.remove(request)
        request.batch.requests -= 1
