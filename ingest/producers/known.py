"""Claimed epochs and idempotency keys: all that a topic knows of its producers besides what each partition knows."""

from collections.abc import Iterable
from heapq import nsmallest

from siltlog.infra import producer_names
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.ingest.producers.epochs import ProducerEpochs
from siltlog.ingest.producers.idempotency import IdempotencyKey, KeyedRequest, KnownKeys
from siltlog.ingest.producers.sequencer import Sequencer, StateBytes

FORGET_PART = 8
"""When there are too many producers, this part of them goes at once, those unused for longest."""


class TopicProducers:
    def __init__(self) -> None:
        self.bytes = StateBytes()
        self.epochs = ProducerEpochs(self.bytes)
        self.epochs_stored = True
        """Whether the object beside the table has every epoch that was claimed."""
        self.keys = KnownKeys()
        self.forgotten_total = 0
        """Producers and keys, by time or because there were too many, since the process started."""
        self.duplicates_total = 0
        """Records that were seen before and not appended."""

    def epochs_changed(self) -> None:
        """The object beside the table lacks a claim."""
        self.epochs_stored = False

    def epochs_written(self) -> None:
        """It has every claim, once the write that begins has succeeded."""
        self.epochs_stored = True

    def find_key(
        self, key: IdempotencyKey, partitions: int, sequencers: Iterable[Sequencer], config: TopicConfig, now_us: int
    ) -> KeyedRequest:
        """Raises Refused `idempotency_key_reused`."""
        before_us = now_us - config.integer("idempotency.expiration.ms") * 1000
        found = self.keys.find(key, partitions, before_us)
        if not self.keys.is_known(found.producer_id):
            return found
        # Of one that has expired, the partitions must not know any more either.
        self._expire_keys(sequencers, before_us)
        return found

    def expire(self, sequencers: Iterable[Sequencer], config: TopicConfig, now_us: int) -> None:
        """Forgets those that were not heard of for `producer.expiration.ms` or `idempotency.expiration.ms`."""
        before_us = now_us - config.integer("producer.expiration.ms") * 1000
        sequencers = list(sequencers)
        self.forgotten_total += sum(sequencer.expire(before_us) for sequencer in sequencers)
        self.forgotten_total += self.epochs.expire(before_us)
        self._expire_keys(sequencers, now_us - config.integer("idempotency.expiration.ms") * 1000)

    def forget_oldest(self, sequencers: Iterable[Sequencer]) -> None:
        """Makes room: of all partitions' producers, and of the epochs, a part goes."""
        known = [
            (state.used_us, at, producer_id, sequencer)
            for at, sequencer in enumerate(sequencers)
            for producer_id, state in sequencer.producers.items()
        ]
        oldest = nsmallest(-(-len(known) // FORGET_PART), known)
        for _, _, producer_id, sequencer in oldest:
            sequencer.forget(producer_id)
        self.forgotten_total += len(oldest) + self.epochs.forget(-(-len(self.epochs) // FORGET_PART))

    def _expire_keys(self, sequencers: Iterable[Sequencer], before_us: int) -> None:
        for sequencer in sequencers:
            sequencer.expire_keys(before_us)
        self.forgotten_total += self.keys.expire(before_us)

    def loaded(self, sequencers: Iterable[Sequencer], now_us: int) -> None:
        """Call it when the partitions have been given what was stored."""
        stored: list[tuple[str, int]] = []
        for sequencer in sequencers:
            stored += [(producer_id, state.used_us) for producer_id, state in sequencer.keys.items()]
            for producer_id, known in sequencer.producers.items():
                # Those of Kafka fence in each partition by itself.
                if known.epoch > 0 and not producer_id.startswith(producer_names.KAFKA_PREFIX):
                    self.epochs.use(producer_id, known.epoch, now_us)
        self.keys.load(stored)
