"""Records whose keys belong to the partition they are written to, as a server writes them."""

from itertools import count as counted
from itertools import islice

import pyarrow as pa
from record_tables import records

from siltlog.infra.arrow.partitioner import partition_of


def keys_of(partition: int, partitions: int, number: int) -> list[bytes]:
    """The first `number` keys that belong there."""
    every = (b"key-%d" % index for index in counted())
    return list(islice((key for key in every if partition_of(key, partitions) == partition), number))


def placed(first: int, count: int, partition: int, partitions: int) -> pa.Table:
    """`count` records from offset `first`, with FILE_SCHEMA; every third has no key."""
    table = records(first, count, full=True)
    own = keys_of(partition, partitions, 5)
    keys = [None if number % 3 == 0 else own[number % 5] for number in range(first, first + count)]
    return table.set_column(table.column_names.index("key"), "key", pa.array(keys, pa.binary()))
