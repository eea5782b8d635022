"""What a topic's table is given when its topic begins, and when it ends."""

import json

from siltlog.infra import names
from siltlog.infra.clock import format_us
from siltlog.infra.delta_log import HOUR_MS, RETENTION_MS
from siltlog.infra.table_snapshot import FALSE, TRUE, TableSnapshot
from siltlog.infra.topic_config import TopicConfig

_PERIOD = f"interval {RETENTION_MS // HOUR_MS} hours"
_RETENTION_PROPERTIES = {"delta.logRetentionDuration": _PERIOD, "delta.deletedFileRetentionDuration": _PERIOD}


def new_properties(topic_id: str, partitions: int, config: TopicConfig, created_us: int) -> dict[str, str]:
    """Table properties of a new topic; the history says which partition count holds from which offsets on."""
    return {
        **_RETENTION_PROPERTIES,
        **config.properties(),
        names.PROPERTY_TOPIC_ID: topic_id,
        names.PROPERTY_DELETED: FALSE,
        names.PROPERTY_PARTITIONS: str(partitions),
        names.PROPERTY_PARTITIONS_EVER: str(partitions),
        names.PROPERTY_PARTITIONS_HISTORY: json.dumps([{"partitions": partitions, "first_offsets": []}]),
        names.PROPERTY_CREATED_AT: format_us(created_us),
    }


def deleted_properties(snapshot: TableSnapshot) -> dict[str, str]:
    """All that stays of a topic: nothing of its configuration may reach its successor."""
    return {
        **_RETENTION_PROPERTIES,
        names.PROPERTY_TOPIC_ID: snapshot.topic_id,
        names.PROPERTY_DELETED: TRUE,
        names.PROPERTY_PARTITIONS: str(snapshot.partitions),
        names.PROPERTY_PARTITIONS_EVER: str(snapshot.partitions_ever),
    }


def reset_transactions(snapshot: TableSnapshot, partitions_ever: int) -> dict[str, int]:
    """App transactions with which a topic starts or ends; epochs of a name never go back."""
    transactions: dict[str, int] = {}
    for partition in range(partitions_ever):
        transactions[names.txn_offset(partition)] = 0
        transactions[names.txn_start(partition)] = 0
        epoch = snapshot.transactions.get(names.txn_epoch(partition), 0) + 1
        transactions[names.txn_epoch(partition)] = epoch
        # Nobody owns it yet: whoever claims it first takes nothing away from anyone.
        transactions[names.txn_released(partition)] = epoch
    return transactions
