"""Requests with an `Idempotency-Key`: each is a producer of its own that publishes once. Pure.

What identifies such a producer (its key, its body, the partition count it was split by) is in its producer id, so it is
remembered with its records wherever producers are: in the WAL, its state, the state objects and the table's rows.
"""

import base64
import hashlib
from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

import xxhash

from siltlog.infra import names, producer_names
from siltlog.infra.arrow.partitioner import partition_of
from siltlog.infra.errors import problem

KEY_CHARS_MAX = 255


class IdempotencyKey(NamedTuple):
    """`key_hash` tells keys apart, whoever chooses them; `body_hash` only tells a slip from a retry."""

    key: bytes
    key_hash: str
    body_hash: str


class KeyedRequest(NamedTuple):
    """Says as which producer a request is published, over how many partitions, and where its keyless records go."""

    producer_id: str
    partitions: int
    keyless_partition: int


def idempotency_key(text: str, *contents: bytes, principal: str = "") -> IdempotencyKey:
    """Makes the key of a request that says `contents`, for `principal` alone unless that is empty.

    Raises Refused `invalid_parameter`.
    """
    if not 1 <= len(text) <= KEY_CHARS_MAX or not text.isprintable():
        raise problem(
            "invalid_parameter",
            f"{names.HEADER_IDEMPOTENCY_KEY} must have 1 to {KEY_CHARS_MAX} printable characters; a UUID is one",
            parameter=names.HEADER_IDEMPOTENCY_KEY,
        )
    key = text.encode("latin-1")
    if principal:
        # No key has a line end.
        key = principal.encode() + b"\n" + key
    body = xxhash.xxh3_64()
    for content in contents:
        body.update(len(content).to_bytes(8, "little"))
        body.update(content)
    return IdempotencyKey(key, _short(hashlib.blake2b(key, digest_size=16).digest()), _short(body.digest()))


class KnownKeys:
    """The keys of a topic, so that a key is found whatever its body was and however many partitions there were."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int]] = {}
        """Key hash -> producer id and when it was used, oldest first."""

    def find(self, key: IdempotencyKey, partitions: int, before_us: int) -> KeyedRequest:
        """Raises Refused `idempotency_key_reused`. What was used before `before_us` counts for nothing."""
        known = self._known.get(key.key_hash)
        if known is None or known[1] < before_us:
            producer_id = producer_names.idempotent_producer(key.key_hash, key.body_hash, partitions)
        else:
            producer_id = known[0]
            _, _, body_hash, count = producer_id.split(":")
            if body_hash != key.body_hash:
                raise problem(
                    "idempotency_key_reused",
                    f"this {names.HEADER_IDEMPOTENCY_KEY} was used for another request; use each for one request only",
                )
            partitions = int(count)
        return KeyedRequest(producer_id, partitions, partition_of(key.key, partitions))

    def is_known(self, producer_id: str) -> bool:
        return _key_hash(producer_id) in self._known

    def remember(self, producer_id: str, now_us: int) -> None:
        """A retry does not make it younger."""
        self._known.setdefault(_key_hash(producer_id), (producer_id, now_us))

    def expire(self, before_us: int) -> int:
        """Forgets those from before `before_us`; how many."""
        old = [name for name, _ in takewhile(lambda item: item[1][1] < before_us, self._known.items())]
        for name in old:
            del self._known[name]
        return len(old)

    def load(self, producers: Iterable[tuple[str, int]]) -> None:
        """(producer id, when used) of everything that is stored, in any order."""
        self._known = {}
        for producer_id, used_us in sorted(producers, key=lambda item: item[1]):
            # Of two bodies the later counts: the key was used again once the earlier had expired.
            self._known.pop(_key_hash(producer_id), None)
            self._known[_key_hash(producer_id)] = (producer_id, used_us)

    def __len__(self) -> int:
        return len(self._known)


def _short(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _key_hash(producer_id: str) -> str:
    return producer_id.split(":", 2)[1]
