"""Names in the log of a topic's Delta table: app transactions, table properties, fields of commits and statistics.

A name here is part of the stored format. Changing one needs a migration.
"""


# App transactions of a topic table (Delta `txn` actions).
def txn_offset(partition: int) -> str:
    """The table offset: exclusive end of what the table holds."""
    return f"offset/{partition}"


def txn_start(partition: int) -> str:
    """The log start offset."""
    return f"start/{partition}"


def txn_epoch(partition: int) -> str:
    """The fencing number of the partition's owner."""
    return f"epoch/{partition}"


def txn_released(partition: int) -> str:
    """The epoch that its owner handed back after flushing everything."""
    return f"released/{partition}"


def txn_shipped(partition: int) -> str:
    """The epoch under which nothing is acknowledged or shown that is in neither a journal nor the table."""
    return f"shipped/{partition}"


def txn_state(partition: int) -> str:
    """The newest object of producer state that was beside the table by then: it is named by that offset."""
    return f"state/{partition}"


def txn_rewrite(partition: int) -> str:
    """Taken by every rewrite, so that two from one snapshot cannot both land."""
    return f"rewrite/{partition}"


def txn_compacted(partition: int) -> str:
    """Below this offset key compaction may have removed records, and has kept the last of each key."""
    return f"compacted/{partition}"


def txn_erased(partition: int) -> str:
    """Below this offset records may be missing, as every record of some key was erased."""
    return f"erased/{partition}"


def txn_tombstones(partition: int) -> str:
    """A tombstone below this offset has been the last of its key since `txn_tombstones_since`; 0: none is awaited."""
    return f"tombstones/{partition}"


def txn_tombstones_since(partition: int) -> str:
    """Milliseconds since 1970."""
    return f"tombstones-since/{partition}"


# Table properties.
PROPERTY_PREFIX = "siltlog."
PROPERTY_TOPIC_ID = "siltlog.topic.id"
PROPERTY_PARTITIONS = "siltlog.partitions"
PROPERTY_JOURNALS = "siltlog.journals"
"""The epochs of a topic that ships, with the journals that have what its table may not have yet; the newest is last."""
PROPERTY_PARTITIONS_EVER = "siltlog.partitions.ever"
PROPERTY_PARTITIONS_HISTORY = "siltlog.partitions.history"
PROPERTY_CREATED_AT = "siltlog.created.at"
PROPERTY_DELETED = "siltlog.deleted"
PROPERTY_CONFIG_PREFIX = "siltlog.config."
PROPERTY_GAPS_PREFIX = "siltlog.gaps."
COMMIT_INFO_ID = "siltlog.commit"
STATISTICS_FOOTER_CRC = "siltlogFooterCrc"
"""A field of an Add action's statistics: CRC-32 of the Parquet footer, which has no checksum of its own."""
STATISTICS_CONTENT_CRC = "siltlogContentCrc"
"""A field beside it: CRC-32C of the whole file, as page headers have no checksum either."""
COMMIT_INFO_TRANSACTIONS = "siltlog.transactions"
"""How many app transactions a commit has; they come last in it, so that a commit cut short is known."""
