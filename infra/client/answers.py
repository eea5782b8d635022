"""The server's answers to a publish and to the claim of a producer."""

import msgspec


class Published(msgspec.Struct):
    class Part(msgspec.Struct):
        partition: int
        count: int
        first_offset: int | None = None
        last_offset: int | None = None
        duplicate: bool = False

    partitions: list[Part]


class Claimed(msgspec.Struct):
    """The answer to a claim; a partition that is absent starts from 0."""

    class Part(msgspec.Struct):
        partition: int
        next_sequence: int
        last_offset: int | None = None

    producer_epoch: int
    partitions: list[Part]
