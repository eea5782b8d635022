"""What a topic forgets of its producers: by time, and when there are too many the ones unused for longest."""

from siltlog.infra.producer_names import kafka_producer
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.ingest.producers.idempotency import idempotency_key
from siltlog.ingest.producers.known import FORGET_PART, TopicProducers
from siltlog.ingest.producers.sequencer import ProducerBatch, Sequencer

CONFIG = TopicConfig({"producer.expiration.ms": 10, "idempotency.expiration.ms": 5})


def topic(partitions: int) -> tuple[TopicProducers, list[Sequencer]]:
    producers = TopicProducers()
    return producers, [Sequencer(taken=producers.bytes) for _ in range(partitions)]


def publish(sequencer: Sequencer, producer: str, now_us: int, epoch: int = 0) -> None:
    batch = ProducerBatch(producer, epoch, sequencer.next_sequence(producer), 1)
    sequencer.append(1, batch, now_us, sequencer.next_offset)


def test_too_many_lose_the_ones_unused_for_longest_wherever_they_are() -> None:
    producers, sequencers = topic(3)
    for now in range(4 * FORGET_PART):
        publish(sequencers[now % 2], f"p{now}", now)
    publish(sequencers[2], "the only one of its partition", 4 * FORGET_PART)
    publish(sequencers[0], "p0", 4 * FORGET_PART)
    producers.forget_oldest(sequencers)
    left = [name for sequencer in sequencers for name in sequencer.producers]
    assert sorted(left) == sorted(
        ["p0", *(f"p{now}" for now in range(6, 4 * FORGET_PART)), "the only one of its partition"]
    )
    assert producers.forgotten_total == 5
    while producers.bytes.producers:
        producers.forget_oldest(sequencers)


def test_epochs_make_room_too() -> None:
    producers, sequencers = topic(1)
    for number in range(20):
        assert producers.epochs.claim(f"p{number}", 0, number) == 1
    while producers.bytes.producers:
        producers.forget_oldest(sequencers)
    assert (len(producers.epochs), producers.forgotten_total) == (0, 20)


def test_each_expires_by_its_own_setting() -> None:
    producers, sequencers = topic(2)
    key = idempotency_key("k", b"1")
    keyed = producers.find_key(key, 2, sequencers, CONFIG, 0)
    publish(sequencers[keyed.keyless_partition], keyed.producer_id, 0)
    producers.keys.remember(keyed.producer_id, 0)
    publish(sequencers[1], "p", 0)
    producers.epochs.claim("p", 0, 0)
    producers.expire(sequencers, CONFIG, 5_000)
    assert (len(producers.keys), len(producers.epochs), len(sequencers[1].producers)) == (1, 1, 1)
    assert producers.find_key(key, 9, sequencers, CONFIG, 5_000) == keyed
    producers.expire(sequencers, CONFIG, 5_001)
    assert (len(producers.keys), len(producers.epochs), len(sequencers[1].producers)) == (0, 1, 1)
    assert not any(sequencer.keys for sequencer in sequencers)
    producers.expire(sequencers, CONFIG, 10_001)
    assert (len(producers.epochs), len(sequencers[1].producers), producers.bytes.keys) == (0, 0, 0)
    assert (producers.forgotten_total, producers.bytes.producers) == (3, 0)


def test_a_key_that_expired_is_not_found_though_nobody_swept() -> None:
    producers, sequencers = topic(1)
    keyed = producers.find_key(idempotency_key("k", b"1"), 1, sequencers, CONFIG, 0)
    publish(sequencers[0], keyed.producer_id, 0)
    producers.keys.remember(keyed.producer_id, 0)
    again = producers.find_key(idempotency_key("k", b"1"), 1, sequencers, CONFIG, 5_001)
    assert again.producer_id == keyed.producer_id
    assert sequencers[0].end_of(again.producer_id) is None


def test_what_was_loaded_is_found_and_fences() -> None:
    producers, sequencers = topic(2)
    keyed = producers.find_key(idempotency_key("k", b"1"), 2, sequencers, CONFIG, 0)
    publish(sequencers[0], keyed.producer_id, 7)
    publish(sequencers[1], "p", 7, epoch=4)
    publish(sequencers[1], kafka_producer(7), 7, epoch=4)
    producers.loaded(sequencers, 8)
    assert producers.find_key(idempotency_key("k", b"1"), 5, sequencers, CONFIG, 8) == keyed
    assert producers.epochs.epoch("p") == 4, "an epoch that was used counts as claimed"
    assert producers.epochs.epoch(kafka_producer(7)) == 0, "one of Kafka fences in its own partition alone"
