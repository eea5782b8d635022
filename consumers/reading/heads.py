"""Heads of partitions that other nodes own, asked for at once: each takes a request, which a read would wait for."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from siltlog.consumers.reading.budget import Budget
from siltlog.consumers.view import PartitionView
from siltlog.infra.errors import SiltlogError

HEADS_AT_ONCE = 16

Head = Sequence[pa.RecordBatch] | SiltlogError
"""What a head gave, nothing where it begins above what was asked for; or why it gave nothing."""


@dataclass(frozen=True, slots=True)
class Wanted:
    view: PartitionView
    offset: int
    end: int


async def read_heads(wanted: Mapping[int, Wanted], budget: Budget) -> dict[int, Head]:
    """Asks for the heads by their keys, each for an equal part of what the budget has left, and takes nothing of it."""
    limit = asyncio.Semaphore(HEADS_AT_ONCE)
    records, nbytes = (max(left // len(wanted), 1) for left in (budget.records_left, budget.bytes_left))

    async def head_of(one: Wanted) -> Head:
        async with limit:
            try:
                return await one.view.read_head(one.offset, one.end, records, nbytes) or ()
            except SiltlogError as error:
                return error

    return dict(zip(wanted, await asyncio.gather(*map(head_of, wanted.values())), strict=True))
