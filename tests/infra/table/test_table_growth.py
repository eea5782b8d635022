"""Changing a topic's table: settings put back, and more partitions with the history of their count."""

import json
from pathlib import Path

import pytest
from record_tables import CLOCK, append, claimed, created, new_id
from s3_server import S3Server

from siltlog.infra import delta_names
from siltlog.infra.errors import Fenced, Refused
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.delta import Make
from siltlog.infra.table.table import TopicTable

EPOCH = 7
PLAIN = TopicConfig({})


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return open_store(tmp_path.as_uri())
    server: S3Server = request.getfixturevalue("s3_server")
    return open_store(server.root_uri(f"growth/{tmp_path.name}"), s3_endpoint=server.endpoint)


def owned(store: ObjectStore, partitions: int = 2) -> TopicTable:
    table = created(store, partitions=partitions)
    table.claim(dict.fromkeys(range(partitions), EPOCH), new_id())
    return table


def test_a_setting_is_put_back(store: ObjectStore) -> None:
    table = owned(store)
    table.set_config(TopicConfig({"retention.ms": 5, "acks": "table", "flush.ms": 3}), new_id())
    table.set_config(TopicConfig({"acks": "wal"}), new_id(), unset=["retention.ms"])
    for snapshot in (table.snapshot, TopicTable.open(store, "t", CLOCK).snapshot):
        assert snapshot.config.own == {"acks": "wal", "flush.ms": 3}


def test_a_topic_grows_with_its_history(store: ObjectStore) -> None:
    table = owned(store)
    append(store, table, {0: 4, 1: 6}, epoch=EPOCH)
    table.grow(3, [4, 6], EPOCH, new_id(), config=TopicConfig({"flush.ms": 9}))
    append(store, table, {0: 1, 2: 2}, epoch=EPOCH)
    table.grow(5, [5, 6, 2], EPOCH, new_id(), config=PLAIN, unset=["flush.ms"])
    append(store, table, {4: 3}, epoch=EPOCH)
    for snapshot in (table.snapshot, TopicTable.open(store, "t", CLOCK).snapshot):
        assert (snapshot.partitions, snapshot.partitions_ever, snapshot.config.own) == (5, 5, {})
        assert snapshot.partition_history == [(2, []), (3, [4, 6]), (5, [5, 6, 2])]
        assert dict(snapshot.offsets) == {0: 5, 1: 6, 2: 2, 3: 0, 4: 3}
        assert dict(snapshot.epochs) == dict.fromkeys(range(5), EPOCH)
        assert dict(snapshot.starts) == dict.fromkeys(range(5), 0)


def test_partitions_that_a_deleted_topic_had_come_back_empty(store: ObjectStore) -> None:
    former = owned(store, 4)
    append(store, former, {3: 5}, epoch=EPOCH)
    former.delete(new_id())
    table = created(store, partitions=1)
    epoch = table.snapshot.epochs[0] + 1
    table.claim({0: epoch}, new_id())
    before = table.snapshot.transactions[delta_names.txn_epoch(3)]
    assert EPOCH < before < epoch, "epochs of a name never go back"
    table.grow(4, [0], epoch, new_id(), config=PLAIN)
    assert dict(table.snapshot.offsets) == dict.fromkeys(range(4), 0) and not table.snapshot.files
    assert table.snapshot.partition_history == [(1, []), (4, [0])]


def test_a_growth_that_cannot_be(store: ObjectStore) -> None:
    table = owned(store)
    version = table.snapshot.version
    with pytest.raises(Refused, match="only grow"):
        table.grow(1, [0, 0], EPOCH, new_id(), config=PLAIN)
    with pytest.raises(Refused, match=r"cleanup\.policy"):
        table.grow(3, [0, 0], EPOCH, new_id(), config=TopicConfig({"cleanup.policy": "compact,delete"}))
    with pytest.raises(Fenced, match="its epoch is 7, not 8"):
        table.grow(3, [0, 0], EPOCH + 1, new_id(), config=PLAIN)
    with pytest.raises(Fenced, match="2 partitions by now"):
        table.grow(3, [0], EPOCH, new_id(), config=PLAIN)
    assert table.refresh().version == version
    table.set_config(TopicConfig({"cleanup.policy": "compact"}), new_id())
    with pytest.raises(Refused, match="does not grow"):
        table.grow(3, [0, 0], EPOCH, new_id(), config=TopicConfig({"cleanup.policy": "delete"}))


def test_an_append_behind_a_growth_lands(store: ObjectStore) -> None:
    table = owned(store)
    other = TopicTable.open(store, "t", CLOCK)
    table.grow(3, [0, 0], EPOCH, new_id(), config=PLAIN)
    append(store, other, {0: 4}, epoch=EPOCH)
    assert other.snapshot.partitions == 3
    assert table.refresh().offsets[0] == 4


def test_a_growth_whose_answer_is_lost_is_found(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = owned(store)
    real = table._handle.commit
    calls = []

    def lost(make: Make) -> None:
        calls.append(make)
        real(make)
        raise OSError("the connection was lost")

    monkeypatch.setattr(table._handle, "commit", lost)
    table.grow(3, [0, 0], EPOCH, new_id(), config=PLAIN)
    assert len(calls) == 1
    assert table.snapshot.partition_history == [(2, []), (3, [0, 0])]


def test_the_history_is_in_a_property(tmp_path: Path) -> None:
    table = claimed(open_store(tmp_path.as_uri()))
    epoch = table.snapshot.epochs[0]
    table.grow(3, [0, 0], epoch, new_id(), config=PLAIN)
    kept = json.loads(table.snapshot.properties[delta_names.PROPERTY_PARTITIONS_HISTORY])
    assert kept == [{"partitions": 2, "first_offsets": []}, {"partitions": 3, "first_offsets": [0, 0]}]
