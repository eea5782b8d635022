"""The headers by which a publish happens exactly once: a producer's, or an idempotency key."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

from siltlog.infra import names
from siltlog.infra.arrow.partitioner import PARTITIONERS, XXHASH64, PlacedBy
from siltlog.infra.errors import problem
from siltlog.infra.limits import EPOCH_MAX, INTEGER_MAX, PARTITION_MAX, whole_number
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.producers.idempotency import IdempotencyKey, idempotency_key
from siltlog.ingest.records.body import Body

Headers = Mapping[str, str]
"""Names are in lower case. Those that are read here come once: the server's door sees to that."""
INCREASING = "increasing"
_KEY = names.HEADER_IDEMPOTENCY_KEY.lower()
_PRODUCER_ID = names.HEADER_PRODUCER_ID.lower()
_PRODUCERS_OWN = {
    name.lower(): name for name in (names.HEADER_PRODUCER_EPOCH, names.HEADER_SEQUENCE, names.HEADER_SEQUENCE_MODE)
}
_EPOCH = names.HEADER_PRODUCER_EPOCH.lower()
_SEQUENCE = names.HEADER_SEQUENCE.lower()
_SEQUENCE_MODE = names.HEADER_SEQUENCE_MODE.lower()
_RECORD_PREFIX = names.HEADER_RECORD_PREFIX.lower()
PRODUCERS_KEPT = 1024
"""How many producers are known again without their id and epoch being read once more."""

_PARTITION_COUNT = names.HEADER_PARTITION_COUNT.lower()
_PARTITIONER = names.HEADER_PARTITIONER.lower()
NAMES = (_KEY, _PRODUCER_ID, *_PRODUCERS_OWN, _PARTITION_COUNT, _PARTITIONER)
"""All that are read here."""


def publisher(
    headers: Headers, body: Body, content: bytes, media: str, query: Iterable[tuple[str, str]], principal: str = ""
) -> Producer | IdempotencyKey | None:
    """Tells who publishes `body`, parsed from `content`; None where the headers do not say.

    Gives the records the sequences that the headers say. An idempotency key is `principal`'s, and another's of the same
    text is another one. Raises Refused.
    """
    producer_id = headers.get(_PRODUCER_ID)
    key = headers.get(_KEY)
    if producer_id is None:
        for field, name in _PRODUCERS_OWN.items():
            if field in headers:
                raise problem("invalid_request", f"{name} needs {names.HEADER_PRODUCER_ID}")
        return None if key is None else _key(key, principal, body, content, media, query)
    if key is not None:
        raise problem(
            "invalid_parameter",
            f"{names.HEADER_IDEMPOTENCY_KEY} and {names.HEADER_PRODUCER_ID} are both given; send one",
            parameter=names.HEADER_IDEMPOTENCY_KEY,
        )
    epoch = _checked_epoch(producer_id, headers.get(_EPOCH))
    given = headers.get(_SEQUENCE)
    first = None if given is None else _integer(given, names.HEADER_SEQUENCE, INTEGER_MAX - body.count)
    if first is not None:
        _give_sequences(body, first)
    _check_named(body)
    mode = headers.get(_SEQUENCE_MODE, "")
    if mode not in ("", INCREASING):
        raise problem(
            "invalid_parameter",
            f"{names.HEADER_SEQUENCE_MODE} must be {INCREASING}, or be left out, not {mode[:40]!r}",
            parameter=names.HEADER_SEQUENCE_MODE,
        )
    return Producer(producer_id, epoch, mode == INCREASING)


@lru_cache(PRODUCERS_KEPT)
def _checked_epoch(producer_id: str, text: str | None) -> int:
    """The epoch that a producer says, 0 if none. Raises Refused for what cannot be an id or an epoch."""
    wrong = names.name_problem(producer_id)
    if wrong is not None:
        raise problem("invalid_parameter", f"{names.HEADER_PRODUCER_ID}: {wrong}", parameter=names.HEADER_PRODUCER_ID)
    return 0 if text is None else _integer(text, names.HEADER_PRODUCER_EPOCH, EPOCH_MAX)


def are_stored(headers: Headers) -> bool:
    """Whether the records were stored before. Raises Refused `invalid_parameter`."""
    text = headers.get(names.HEADER_TIMESTAMPS.lower(), "")
    if text not in ("", names.TIMESTAMPS_STORED):
        raise problem(
            "invalid_parameter",
            f"{names.HEADER_TIMESTAMPS} must be {names.TIMESTAMPS_STORED}, or be left out, not {text[:40]!r}",
            parameter=names.HEADER_TIMESTAMPS,
        )
    return text == names.TIMESTAMPS_STORED


def placed_by(headers: Headers) -> PlacedBy | None:
    """Tells how a client has placed keys; None where it does not say. Raises Refused `invalid_parameter`."""
    count, partitioner = headers.get(_PARTITION_COUNT), headers.get(_PARTITIONER)
    if count is None and partitioner is None:
        return None
    partitioner = XXHASH64.name if partitioner is None else partitioner
    if count is None or partitioner not in PARTITIONERS:
        wrong = names.HEADER_PARTITION_COUNT if count is None else names.HEADER_PARTITIONER
        raise problem(
            "invalid_parameter",
            f"{names.HEADER_PARTITIONER} says how keys were placed, {' or '.join(PARTITIONERS)}, and "
            f"{names.HEADER_PARTITION_COUNT} beside it among how many partitions; what came is {partitioner[:40]!r} of "
            f"{count if count is None else count[:40]!r}",
            parameter=wrong,
        )
    return PlacedBy(_integer(count, names.HEADER_PARTITION_COUNT, PARTITION_MAX), partitioner)


def _integer(text: str, name: str, maximum: int) -> int:
    number = whole_number(text)
    if number is None or number > maximum:
        raise problem(
            "invalid_parameter", f"{name} must be a whole number from 0 to {maximum}, not {text[:40]!r}", parameter=name
        )
    return number


def _key(
    text: str, principal: str, body: Body, content: bytes, media: str, query: Iterable[tuple[str, str]]
) -> IdempotencyKey:
    # All that says what is to be stored; how long the answer may take is not part of it.
    said = [media]
    for name, value in query:
        if name not in ("acks", "timeout_ms"):
            said += (name, value)
    if media == names.MEDIA_BYTES and body.rows is not None:
        for field, content_of in body.rows.headers[0] or ():
            said += (_RECORD_PREFIX + field, (content_of or b"").decode("latin-1"))
    return idempotency_key(text, content, *(part.encode() for part in said), principal=principal)


def _give_sequences(body: Body, first: int) -> None:
    """Silt-Sequence: the first sequence of a body for one partition. A record that says another is no tie to break."""
    wrong: int | None = None
    if body.rows is not None:
        several = len(set(body.rows.partitions)) > 1
        if body.rows.sequences.count(None) < body.count:
            given = enumerate(body.rows.sequences)
            wrong = next((index for index, own in given if own not in (None, first + index)), None)
        body.rows.sequences = list(range(first, first + body.count))
    else:
        several = body.partition is not None and bool((body.partition != body.partition[0]).any())
        sequence = np.arange(first, first + body.count, dtype=np.int64)
        if body.sequence is not None and (clash := body.sequence != sequence).any():
            wrong = int(np.argmax(clash))
        body.sequence = sequence
    if several:
        raise problem("invalid_request", "Silt-Sequence is for a body of one partition; give each record its sequence")
    if wrong is not None:
        raise problem(
            "invalid_record",
            f"record {wrong} has another sequence than {first + wrong}, which {names.HEADER_SEQUENCE} gives it",
            index=wrong,
        )


def _check_named(body: Body) -> None:
    if body.rows is not None:
        partitions, sequences = body.rows.partitions, body.rows.sequences
        if min(partitions) >= 0 and None not in sequences:
            return
        pairs = zip(partitions, sequences, strict=True)
        index = next(index for index, (partition, number) in enumerate(pairs) if partition < 0 or number is None)
    elif body.partition is None or body.sequence is None:
        index = 0
    else:
        missing = body.partition < 0
        if not missing.any():
            return
        index = int(np.argmax(missing))
    raise problem(
        "invalid_record",
        f"record {index}: with Silt-Producer-Id every record names its partition and its sequence",
        index=index,
    )
