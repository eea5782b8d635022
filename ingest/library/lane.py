"""The publishing of one topic: what to ask the server next and what its answers mean. No IO, no clock.

Several requests may be in flight, but of each partition only one: so order holds and sequences stay contiguous without
a word between requests. A retry is the same request, byte for byte.

What is refused has no effect, so its sequence numbers are used again. Where the server does not know them, the lane
claims its producer id anew: that fences whatever is still under way, and says what arrived. What ends without a known
outcome may still arrive: the lane then goes on under a new producer id, as nobody can tell which sequence is next.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from siltlog.infra.client.answers import Claimed
from siltlog.infra.client.core import Request, Response, backoff_ms, json_request
from siltlog.infra.errors import OutcomeUnknown, SiltlogError, Unavailable, of_the_record
from siltlog.ingest.library.batch import Batch, Landed
from siltlog.ingest.library.options import PublishOptions
from siltlog.ingest.library.placer import Placer
from siltlog.ingest.library.request import Flight, Identity, Limits, flight_of

IN_FLIGHT_MAX = 4
"""Requests of one topic at a time."""
YOUNG_IN_FLIGHT_MAX = 2
"""Beside as many, a batch that is not full waits: records then gather by themselves while requests are under way."""
UNKNOWN_TOPIC_CODES = frozenset(("unknown_topic", "unknown_partition"))
BAD_RECORD_CODES = frozenset(("invalid_record", "record_too_large"))
CLAIMABLE_CODES = frozenset(("unknown_producer", "out_of_order_sequence"))
Lookup = Literal["topic", "limits", "claim"]
_log = logging.getLogger("siltlog.producer")
_CLAIMED = msgspec.json.Decoder(Claimed)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A request to send now: that of a flight, or a question."""

    request: Request
    flight: Flight | None = None
    lookup: Lookup | None = None
    identity: Identity | None = None
    """The identity that is claimed."""


class Lane:
    """`due`, `not_before`, `ending`, `idle` and `wants` may be asked at any time; for the rest callers hold `lock`."""

    def __init__(self, topic: str, options: PublishOptions, limits: Limits, jitter: Callable[[], float]) -> None:
        self.topic = topic
        self.lock = threading.Lock()
        self.ending = False
        self.not_before = 0.0
        """No new request before; what is sent again has its own time."""
        self._asked_before = 0.0
        self.due: float | None = None
        """When `next_step` has something to do, beside a batch that it was not given yet."""
        self.idle = True
        self._options = options
        self._limits = limits
        self._jitter = jitter
        self._partitions: int | None = None
        self._guessed = False
        self._identity = Identity()
        self._fenced: SiltlogError | None = None
        self._placer = Placer(topic, limits, jitter)
        self._given: Batch | None = None
        self._finished: list[Batch] = []
        self._flights: list[Flight] = []
        self._busy: set[int] = set()
        self._lookup: Lookup | None = None
        self._claiming = False
        self._claim_lost = False
        self._waiting = False
        self._attempts = 0
        self._restarts = 0
        self._last_error: SiltlogError | None = None

    def wants(self, batch: Batch) -> bool:
        """Whether it has a use for the batch now; what it has no use for yet may go on growing."""
        if self._given is not None or self._waiting:
            return False
        flights = len(self._flights)
        if not flights or self.ending:
            return True
        if flights >= IN_FLIGHT_MAX or self._claiming or self._partitions is None:
            return False
        if batch.placed:
            return batch.full
        return len(self._busy) < self._partitions and (batch.full or flights < YOUNG_IN_FLIGHT_MAX)

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
            if step.flight is None:
                self._lookup = None
            elif step.flight in self._flights:
                step.flight.in_air = False
            else:
                return
            if isinstance(result, Response):
                try:
                    self._succeeded(step, result, now)
                except (msgspec.MsgspecError, OutcomeUnknown, KeyError, TypeError, ValueError) as error:
                    result = OutcomeUnknown(f"the server's reply is not understood: {error}", error_code="internal")
            if isinstance(result, SiltlogError):
                self._failed(step, result, now)
            else:
                self._attempts = 0
        finally:
            self._settle_schedule()

    def abandon(self, error: SiltlogError) -> None:
        """Fails all there is, which may have arrived."""
        for flight in list(self._flights):
            self._doubt(flight, error)
        self._placer.fail_waiting(self._placer.batches, error)
        self._settle_schedule()

    def _settle_schedule(self) -> None:
        """Brings what others read up to date: finished batches, and when there is something to do."""
        self._finished += self._placer.take_finished()
        self._busy = {number for flight in self._flights for number in flight.placement.counts}
        self._waiting = bool(self._placer.waiting())
        self.idle = not self._placer.batches
        if not self._flights and self._lookup != "claim":
            self._claiming = False
            self._leave_lost_claim()
        self.due = self._next_due()

    def _next_due(self) -> float | None:
        grounded = [flight for flight in self._flights if not flight.in_air]
        if not grounded and not self._waiting:
            return None
        if self.ending:
            return 0.0
        held = [flight.batch for flight in grounded] + self._placer.waiting()
        dues = [batch.created + self._options.delivery_timeout_ms / 1000 for batch in held]
        dues += [flight.not_before for flight in grounded if flight.refusal is None]
        may_fly = self._waiting and not self._claiming and self._may_fly()
        if self._lookup is None and (may_fly or self._wanted_lookup() is not None):
            dues.append(self.not_before)
        return min(dues)

    def _wanted_lookup(self) -> Lookup | None:
        if self._claiming:
            return "claim" if all(flight.refusal is not None for flight in self._flights) else None
        if self._partitions is None:
            return "topic" if self._waiting else None
        return "limits" if self._waiting and not self._limits.known and not self._flights else None

    def _lookup_step(self, now: float) -> Step | None:
        if self._lookup is not None or now < self.not_before:
            return None
        self._waiting = bool(self._placer.waiting())
        self._lookup = self._wanted_lookup()
        if self._lookup == "topic":
            request = json_request("GET", f"/v1/topics/{self.topic}")
        elif self._lookup == "limits":
            request = json_request("GET", "/v1/cluster")
        elif self._lookup == "claim":
            request = json_request("POST", self._identity.claim_path(self.topic), repeatable=True)
        else:
            return None
        return Step(request, lookup=self._lookup, identity=self._identity)

    def _retry_step(self, now: float) -> Step | None:
        for flight in self._flights:
            if not flight.in_air and flight.refusal is None and flight.not_before <= now:
                return self._fly(flight, now)
        return None

    def _new_step(self, now: float) -> Step | None:
        if self._partitions is None or self._lookup is not None or self._claiming or now < self.not_before:
            return None
        placer = self._placer
        if placer.placed is None and self._may_fly():
            placer.place_next(self._partitions, self._busy, checked=not self._guessed)
        if placer.placed is None or not self._may_fly():
            return None
        flight = flight_of(*placer.placed, self._partitions, self._identity, self._options.compression)
        placer.take_placed()
        self._flights.append(flight)
        return self._fly(flight, now)

    def _fly(self, flight: Flight, now: float) -> Step:
        flight.in_air = True
        return Step(flight.request(self._options, self._remaining_ms(flight.batch, now)), flight)

    def _may_fly(self) -> bool:
        """Whether the next rows may go beside what is in flight."""
        if len(self._flights) >= IN_FLIGHT_MAX or self._partitions is None:
            return False
        if any(flight.partitions != self._partitions for flight in self._flights):
            # The same key may be on its way to another partition.
            return False
        if self._placer.placed is not None:
            return self._busy.isdisjoint(self._placer.placed.placement.counts)
        return len(self._busy) < self._partitions or not self._flights

    def _succeeded(self, step: Step, response: Response, now: float) -> None:
        if step.flight is not None:
            self._landed(step.flight, step.flight.landed(response.body))
            self._guessed = False
            self._restarts = 0
        elif step.lookup == "topic":
            self._partitions, self._guessed = int(response.json()["partitions"]), False
        elif step.lookup == "limits":
            self._limits.learn(response.json())
        elif step.identity is self._identity:
            self._claimed(_CLAIMED.decode(response.body), now)
        else:
            self._claiming = False

    def _landed(self, flight: Flight, outcome: Landed) -> None:
        flight.batch.landed(outcome)
        for number, count in flight.placement.counts.items():
            flight.identity.sequences[number] = flight.sequences[number] + count
        self._remove(flight)

    def _claimed(self, claimed: Claimed, now: float) -> None:
        """The producer goes on where the server says that it stopped; nothing that is still under way can land."""
        parts = {part.partition: part for part in claimed.partitions}
        identity = self._identity
        self._claiming = False
        for flight in list(self._flights):
            try:
                outcome = flight.found(parts) if flight.maybe_landed else None
            except OutcomeUnknown as mixed:
                self._doubt(flight, mixed)
                continue
            refusal = flight.refusal
            if outcome is not None:
                self._landed(flight, outcome)
            elif refusal is None or refusal.error_code in CLAIMABLE_CODES:
                self._take_back(flight)
            else:
                # No attempt arrived, and none can any more: the refusal stands for all of them.
                self._refused(flight, refusal, now)
        identity.epoch = claimed.producer_epoch
        identity.sequences = {number: part.next_sequence for number, part in parts.items()}
        self._leave_lost_claim()

    def _leave_lost_claim(self) -> None:
        """A claim that got no answer may still arrive, and fence whatever goes on under the same id."""
        if self._claim_lost:
            self._identity, self._claim_lost = Identity(), False

    def _failed(self, step: Step, error: SiltlogError, now: float) -> None:
        self._last_error = error
        flight = step.flight
        if error.retryable != "no":
            if error.retryable == "unknown" and flight is not None:
                flight.maybe_landed = True
            elif error.retryable == "unknown" and step.lookup == "claim":
                self._claim_lost = True
            self._pause(flight, error, now)
        elif flight is None:
            self._refused_lookup(step, error)
        elif error.error_code == "fenced_producer":
            # Somebody claimed this producer's id: it must not go on under any other.
            self._fenced = error
            self._end(flight, error)
        elif error.error_code not in CLAIMABLE_CODES and not flight.maybe_landed:
            self._refused(flight, error, now)
        elif flight.identity is self._identity:
            _log.warning("topic %s: claiming the producer's id: %s", self.topic, error.detail)
            self._restart(now)
            flight.refusal = error
            self._claiming = True
        elif flight.maybe_landed:
            self._doubt(flight, error)
        else:
            self._take_back(flight)

    def _pause(self, flight: Flight | None, error: SiltlogError, now: float) -> None:
        attempts = self._attempts if flight is None else flight.attempts
        until = now + backoff_ms(attempts, self._jitter(), error.retry_after_ms) / 1000
        self.not_before = max(self.not_before, until)
        if error.retry_after_ms is not None:
            self._asked_before = max(self._asked_before, now + error.retry_after_ms / 1000)
        if flight is None:
            self._attempts += 1
        else:
            flight.attempts += 1
            flight.not_before = until

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
            self._claiming = False
            if step.identity is self._identity:
                _log.warning("topic %s: the producer goes on under a new id: %s", self.topic, error.detail)
                self._identity = Identity()
            for flight in list(self._flights):
                if flight.maybe_landed:
                    self._doubt(flight, error)
                else:
                    self._take_back(flight)
        elif step.lookup == "topic" and error.error_code == "unknown_topic":
            self._partitions, self._guessed = 1, True
        else:
            self._placer.fail_waiting(self._placer.batches, error)

    def _take_back(self, flight: Flight) -> None:
        """Nothing of it happened: its rows are placed anew."""
        self._give_back(flight, (flight.start, flight.stop))

    def _give_back(self, flight: Flight, *ranges: tuple[int, int]) -> None:
        """Ends a flight, of which these rows wait again."""
        self._remove(flight)
        self._placer.give_back(flight.batch, flight.placement, *ranges)

    def _refused(self, flight: Flight, error: SiltlogError, now: float) -> None:
        """Nothing of it happened and the same again will not help; other rows of it, or placed anew, may be taken."""
        if error.error_code == "partition_count_changed" or (self._guessed and error.error_code == "unknown_partition"):
            self._restart(now)
            # A topic that publishing creates is not made before rows come that were placed by its count, so that there
            # may be none to look up yet.
            count = error.members.get("partitions")
            self._partitions, self._guessed = (count if isinstance(count, int) else None), False
            self._take_back(flight)
            return
        batch, start, stop = flight.batch, flight.start, flight.stop
        count = stop - start
        index = error.members.get("index")
        if error.error_code in UNKNOWN_TOPIC_CODES:
            self._partitions = None
        if error.error_code == "request_too_large" and count > 1:
            middle = start + count // 2
            self._give_back(flight, (start, middle), (middle, stop))
            self._limits.records = min(self._limits.records, max(1, count // 2))
        elif error.error_code in BAD_RECORD_CODES and isinstance(index, int) and 0 <= index < count and count > 1:
            order = flight.placement.order
            row = start + (index if order is None else int(order[index]))
            error.detail = of_the_record(error)
            batch.failed(row, row + 1, error)
            self._give_back(flight, (start, row), (row + 1, stop))
        else:
            if count == 1:
                error.detail = of_the_record(error)
            self._give_back(flight)
            batch.failed(start, stop, error)

    def _end(self, flight: Flight, error: SiltlogError) -> None:
        """Ends a flight that is not in the air."""
        if flight.maybe_landed:
            self._doubt(flight, error)
        else:
            self._remove(flight)
            flight.batch.failed(flight.start, flight.stop, error)

    def _doubt(self, flight: Flight, error: SiltlogError) -> None:
        """Ends a flight of which an attempt may have arrived."""
        self._remove(flight)
        if flight.identity is self._identity:
            self._identity = Identity()
        unknown = OutcomeUnknown(
            f"it may have arrived, or part of it: an attempt got no answer, and then: {error.detail}",
            error_code=error.error_code if error.retryable == "unknown" else "ack_timeout",
            status=error.status,
            request_id=error.request_id,
            members=error.members,
        )
        flight.batch.failed(flight.start, flight.stop, unknown)

    def _remove(self, flight: Flight) -> None:
        self._flights.remove(flight)
        flight.batch.flights -= 1

    def _remaining_ms(self, batch: Batch, now: float) -> float:
        return self._options.delivery_timeout_ms - (now - batch.created) * 1000

    def _expire(self, now: float) -> None:
        """Fails what was not delivered in `delivery_timeout_ms`, or before the producer was closed with less time."""
        if self._fenced is not None:
            self._placer.fail_waiting(self._placer.batches, self._fenced)
        late = [batch for batch in self._placer.batches if self.ending or self._remaining_ms(batch, now) <= 0]
        if not late:
            return
        limit = "until the producer was closed" if self.ending else f"within {self._options.delivery_timeout_ms} ms"
        last = f"; the last attempt: {self._last_error.detail}" if self._last_error is not None else ""
        error = Unavailable(
            f"not delivered {limit}, and nothing of it arrived{last}", error_code="delivery_timeout", retryable="yes"
        )
        for flight in [flight for flight in self._flights if flight.batch in late and not flight.in_air]:
            self._end(flight, (flight.maybe_landed and self._last_error) or error)
        self._placer.fail_waiting(late, error)
        # Whoever comes next does not wait for the back-off of what has failed; what the server asked for still holds.
        self.not_before, self._last_error = min(self.not_before, self._asked_before), None
