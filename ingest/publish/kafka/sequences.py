"""Kafka's sequences as ours. Pure.

Kafka's have 31 bits, go on at 0 after the last, and begin at 0 again under each epoch (KIP-98, KIP-360); ours rise for
ever. A new epoch begins at the next multiple of 2^31, so ours modulo 2^31 is Kafka's, however it was learned.
"""

from siltlog.ingest.producers.sequencer import Place

SEQUENCES = 1 << 31
BEHIND_MAX = 1 << 30
"""A sequence that lies further behind the next one lies before it: it skips some."""


def own_sequence(sequence: int, epoch: int, place: Place | None) -> int | None:
    """Gives the first sequence of a batch by our count; `place` is None for a producer that is not known.

    None where the batch is out of order: it skips some, or begins an epoch with another sequence than 0.
    """
    if place is None or epoch < place.epoch:
        # Whoever is not known may begin anywhere, and an old epoch is refused for what it is.
        return sequence
    if epoch > place.epoch:
        return -(-place.next_sequence // SEQUENCES) * SEQUENCES if sequence == 0 else None
    behind = (place.next_sequence - sequence) % SEQUENCES
    return place.next_sequence - behind if behind <= min(BEHIND_MAX, place.next_sequence) else None
