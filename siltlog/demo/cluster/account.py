"""Whether it holds: what was published against what was acknowledged, what the group read, and the tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from siltlog.demo.cluster.result import ClusterResult
from siltlog.demo.ledger import Ledger, compare, out_of_order


@dataclass(frozen=True, slots=True)
class Books:
    """Ledgers of all topics together: each partition has a number of its own."""

    written: Ledger
    """where the acknowledgements said that the flights are"""
    streams: Sequence[Ledger]
    """of each producer that sent without waiting, in the order of sending"""
    read: Sequence[Ledger]
    """by each member of the group, in the order of reading"""
    rows: Ledger
    """of the tables"""
    errors: Sequence[str] = ()
    """what ended a member early"""


def account(books: Books, result: ClusterResult) -> None:
    """Notes the counts and the checks."""
    read = Ledger.concat(list(books.read))
    by_group, in_tables = compare(books.written, read), compare(books.written, books.rows)
    result.acknowledged = len(books.written)
    result.read, result.repeated = read.distinct, by_group.repeated
    result.rows = len(books.rows)
    errors = "".join(f"; {error}" for error in books.errors)
    result.check(
        "published = acknowledged = read",
        result.published == result.acknowledged == result.read == result.records and not errors,
        f"{result.published:,} = {result.acknowledged:,} = {result.read:,} of {result.records:,} flights{errors}",
    )
    result.check(
        "nothing lost",
        not by_group.missing and not in_tables.missing,
        f"{by_group.missing:,} acknowledged and never read, {in_tables.missing:,} acknowledged and in no table",
    )
    result.check(
        "nothing doubled",
        books.written.distinct == result.records
        and not (in_tables.repeated or in_tables.unknown or by_group.unknown)
        and len(books.rows) == result.records,
        f"{len(books.rows):,} rows in the tables; {in_tables.repeated + in_tables.unknown:,} too many, "
        f"{by_group.unknown:,} read that nobody published",
    )
    result.check(
        "unchanged",
        not by_group.altered and not in_tables.altered,
        f"{by_group.altered:,} read with other bytes, {in_tables.altered:,} in the tables",
    )
    sent = sum(map(out_of_order, books.streams))
    seen = sum(out_of_order(ledger.first_times) for ledger in books.read)
    result.check(
        "in order",
        not sent and not seen,
        f"{sent:,} of the streams stand before an earlier one, {seen:,} were read after a later one",
    )
