"""What is remembered of batches that were refused before their producer was known."""

from siltlog.ingest.publish.kafka.refused import REFUSED_MAX, TRIED_SECONDS, RefusedBatches, Sender


def test_only_what_lies_behind_the_lowest_that_was_refused_waits() -> None:
    refused, sender = RefusedBatches(), Sender("orders", 0, 7, 0)
    refused.add(sender, 5, 1.0)
    refused.add(sender, 9, 2.0)
    assert [refused.has_before(sender, number, 3.0) for number in (4, 5, 6)] == [False, False, True]
    assert not refused.has_before(sender._replace(epoch=1), 6, 3.0)
    assert not refused.has_before(sender._replace(partition=1), 6, 3.0)
    refused.taken(sender)
    assert not refused.has_before(sender, 6, 3.0)


def test_the_oldest_is_forgotten() -> None:
    refused = RefusedBatches()
    for number in range(REFUSED_MAX + 1):
        refused.add(Sender("orders", 0, number, 0), 0, 1.0)
    assert not refused.has_before(Sender("orders", 0, 0, 0), 1, 1.0)
    assert refused.has_before(Sender("orders", 0, 1, 0), 1, 1.0)


def test_who_was_refused_long_ago_has_given_up() -> None:
    """A node that did not own the topic then may own it now."""
    refused, sender = RefusedBatches(), Sender("orders", 0, 7, 0)
    refused.add(sender, 5, 1.0)
    assert refused.has_before(sender, 6, 1.0 + TRIED_SECONDS)
    assert not refused.has_before(sender, 6, 2.0 + TRIED_SECONDS)
    refused.add(sender, 9, 2.0 + TRIED_SECONDS)
    assert not refused.has_before(sender, 9, 3.0 + TRIED_SECONDS)
    assert refused.has_before(sender, 10, 3.0 + TRIED_SECONDS)
