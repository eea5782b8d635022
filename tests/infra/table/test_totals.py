"""What was written is compared with what was to stay, before it is committed."""

from dataclasses import replace

import pytest
from prices import TOPIC, Record, table_of

from siltlog.infra.errors import CorruptData
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile, write_data_file
from siltlog.infra.table.totals import Kept, check_kept

RECORDS: list[Record] = [(b"a", b"1"), (None, b"2"), (b"", None), (None, b"3"), (b"a", b"4")]


def written(store: ObjectStore, first: int, records: list[Record], partition: int = 0) -> DataFile:
    return write_data_file(store, TOPIC, partition, table_of(first, records), compression="zstd", now_ms=0)


@pytest.mark.rule("K6")
def test_what_is_as_it_was_to_be_passes(store: ObjectStore) -> None:
    files = [written(store, 10, RECORDS), written(store, 20, RECORDS[:3]), written(store, 7, RECORDS[:2], 1)]
    kept = {0: Kept(8, 60 + 63, 3, 14), 1: Kept(2, 15, 1, 9), 2: Kept(0, 0, 0, 5)}
    check_kept(store, TOPIC, files, kept)
    for wrong in ({"rows": 7}, {"total": 122}, {"keyless": 2}):
        with pytest.raises(CorruptData, match="partition 0, would change its records"):
            check_kept(store, TOPIC, files, {**kept, 0: kept[0]._replace(**wrong)})
    with pytest.raises(CorruptData, match="partition 2"):
        check_kept(store, TOPIC, files, {**kept, 2: Kept(1, 4, 0, 5)})


@pytest.mark.rule("K6")
def test_a_key_twice_below_the_end_is_refused(store: ObjectStore) -> None:
    """Above it records supersede nothing yet."""
    files = [written(store, 10, RECORDS)]
    check_kept(store, TOPIC, files, {0: Kept(5, 60, 2, 14)})
    with pytest.raises(CorruptData, match="has several records of a key"):
        check_kept(store, TOPIC, files, {0: Kept(5, 60, 2, 15)})


@pytest.mark.rule("K6")
def test_records_that_are_not_in_their_order_are_refused(store: ObjectStore) -> None:
    swapped = table_of(10, RECORDS).take([1, 0, 2, 3, 4])
    file = write_data_file(store, TOPIC, 0, swapped, compression="zstd", now_ms=0)
    with pytest.raises(CorruptData, match="not in their order"):
        check_kept(store, TOPIC, [replace(file, first_offset=10)], {0: Kept(5, 60, 2, 10)})
