"""Producers, as a successor without the log learns them: an object beside the table, and the rows after it."""

from pathlib import Path
from typing import cast

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_tables import CLOCK, claimed, new_id, records

from siltlog.infra import names
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import write_data_file
from siltlog.infra.table.producer_objects import OBJECTS_KEPT
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.ownership.take import inherited
from siltlog.ingest.producers import objects
from siltlog.ingest.producers.epochs import ProducerEpochs
from siltlog.ingest.producers.sequencer import APPEND, ProducerBatch, Sequencer, StateBytes
from siltlog.ingest.wal import Wal

REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["", "p", "q"]),
        st.integers(1, 4),
        st.integers(0, 1),
        st.sampled_from([0, 0, 0, 1, 7]),
        st.sampled_from(["", "", "flush", "save"]),
    ),
    max_size=30,
)


def numbers(batch: ProducerBatch) -> list[int]:
    """Its sequences; what it skips lies before its last one."""
    return [*range(batch.first_sequence, batch.first_sequence + batch.rows - 1), batch.last_sequence]


def flushed(store: ObjectStore, table: TopicTable, requests: list[tuple[ProducerBatch | None, int]]) -> None:
    """One file of the requests' records; their sequences are columns, as in any table."""
    first = table.snapshot.offsets[0]
    rows = records(first, sum(count for _, count in requests))
    ids = [batch.producer_id if batch else None for batch, count in requests for _ in range(count)]
    epochs = [batch.producer_epoch if batch else None for batch, count in requests for _ in range(count)]
    sequences = [number for batch, count in requests for number in (numbers(batch) if batch else [None] * count)]
    for name, column in (("producer_id", ids), ("producer_epoch", epochs), ("sequence", sequences)):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(name), pa.array(column, rows.schema.field(name).type))
    file = write_data_file(store, table.topic, 0, rows, compression="zstd", now_ms=CLOCK.now_us() // 1000)
    table.append([file], {0: (first, first + rows.num_rows)}, {0: 1}, new_id())


def save(
    store: ObjectStore,
    table: TopicTable,
    offset: int,
    sequencer: Sequencer,
    former: dict[int, list[str]] | None = None,
) -> dict[int, list[str]]:
    state = objects.StateObject(0, offset, sequencer.dump(offset))
    return objects.write(store, table.topic, table.snapshot.topic_id, [state], former or {})


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(REQUESTS)
def test_a_successor_knows_what_the_table_holds(tmp_path: Path, steps: list[tuple[str, int, int, int, str]]) -> None:
    store = open_store((tmp_path / new_id()).as_uri())
    table = claimed(store, partitions=1)
    sequencer, below = Sequencer(), Sequencer()
    waiting: list[tuple[ProducerBatch | None, int]] = []
    for producer, count, epoch, skipped, then in steps:
        batch = None
        if producer:
            known = sequencer.producers.get(producer)
            raised = max(epoch, known.epoch if known else 0)
            batch = ProducerBatch(
                producer, raised, sequencer.next_sequence(producer), count, skipped if count > 1 else 0
            )
            assert sequencer.check(batch) is APPEND
        sequencer.append(count, batch, 0, 0)
        waiting.append((batch, count))
        if then:
            flushed(store, table, waiting)
            for one, rows in waiting:
                below.append(rows, one, 0, 0)
            waiting = []
        if then == "save":
            offset = table.snapshot.offsets[0]
            save(store, table, offset, sequencer)
    found = objects.read(store, table.topic, table.snapshot, 0)
    assert {name: (state.epoch, state.last_sequence) for name, state in found.items()} == {
        name: (state.epoch, state.last_sequence) for name, state in below.producers.items()
    }
    successor = Sequencer(table.snapshot.offsets[0])
    successor.load(found.items())
    for name, state in below.producers.items():
        if any(known.skipped for known in state.batches):
            continue
        for known in state.batches:
            retried = ProducerBatch(
                name, state.epoch, known.first_sequence, known.last_sequence - known.first_sequence + 1
            )
            # Neighbouring requests may have become one, never another offset.
            assert successor.check(retried) == below.check(retried)


def test_who_sent_old_records_is_not_forgotten_by_a_successor(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    table = claimed(store, partitions=1)
    flushed(store, table, [(ProducerBatch("p", 0, 0, 3), 3)])
    topic = TopicLog(table.topic, table, TopicConfig({}), cast(Wal, None))
    topic.partitions[0].sequencer.load(inherited(store, CLOCK.now_us(), topic, 0).items())
    topic.expire_producers(CLOCK.now_us())
    assert topic.partitions[0].sequencer.next_sequence("p") == 3


def test_epochs_are_merged_whoever_wrote_them(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    epochs = ProducerEpochs(StateBytes())
    assert objects.read_epochs(store, "t", "id") == epochs.dump()

    def write(epoch: int) -> None:
        objects.write_epochs(store, "t", "id", epoch, objects.encode_epochs(epochs.dump()))

    epochs.claim("p", 0, 1)
    write(5)
    epochs.claim("p", 0, 2)
    write(7)
    assert len(store.list("topics/t/_state/id/claims/")) == 1
    epochs.claim("q", 0, 3)
    # A forerunner that does not know yet that it is one.
    write(6)
    found = ProducerEpochs(StateBytes())
    found.load(objects.read_epochs(store, "t", "id"))
    assert (found.epoch("p"), found.epoch("q")) == (2, 1)


def test_older_objects_go_and_those_above_the_table_are_not_believed(tmp_path: Path) -> None:
    """A table that was restored to an earlier version must not meet a state of its future."""
    store = open_store(tmp_path.as_uri())
    table = claimed(store, partitions=1)
    sequencer = Sequencer()
    left: dict[int, list[str]] = {}
    for number in range(4):
        batch = ProducerBatch("p", 0, number, 1)
        sequencer.append(1, batch, 0, 0)
        flushed(store, table, [(batch, 1)])
        offset = table.snapshot.offsets[0]
        left |= save(store, table, offset, sequencer, left)
    folder = f"{names.topic_path(table.topic)}/{names.STATE_FOLDER}/{table.snapshot.topic_id}/0"
    assert [info.path for info in store.list(folder + "/")] == left[0]
    assert len(left[0]) == OBJECTS_KEPT
    stranger = objects.StateObject(0, 9, {"stranger": sequencer.producers["p"]})
    objects.write(store, table.topic, table.snapshot.topic_id, [stranger], {})
    found = objects.read(store, table.topic, table.snapshot, 0)
    assert {name: state.last_sequence for name, state in found.items()} == {"p": 3}
