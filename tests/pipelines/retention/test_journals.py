"""What no topic can need any more goes from journals, and never the seal."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from record_tables import CLOCK, claimed

from siltlog.infra import names
from siltlog.infra.cluster.beat import Beat, encode_beat
from siltlog.infra.cluster.view import ClusterView, NodeEntry, TermEntry, TopicEntry, encode_view
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.ingest.journal import codec
from siltlog.pipelines.retention.journals import GONE_MS, HEADER_BYTES
from siltlog.pipelines.retention.vacuum import BESIDE_TOPICS, vacuum_topics

DAY_MS = 86_400_000
OLD = GONE_MS + DAY_MS


def aged(store: ObjectStore, path: str, age_ms: int) -> None:
    seconds = (CLOCK.now_us() // 1000 - age_ms) / 1000
    os.utime(store.path(path), (seconds, seconds))  # type: ignore[attr-defined]


def beside(folder: Path, *, dry_run: bool = False) -> set[str]:
    reports = vacuum_topics(ServerSettings(data_dir=folder, root=folder.as_uri()), dry_run=dry_run)
    assert [report.error for report in reports if report.error] == []
    return {path for report in reports if report.topic == BESIDE_TOPICS for path in report.paths}


def objects(store: ObjectStore, node: str, journal: str, age_ms: int = OLD, count: int = 3) -> list[str]:
    """Puts objects with records, and a seal behind them."""
    paths = [names.journal_object(node, journal, number) for number in range(count + 1)]
    for path in paths:
        store.put(path, b"x" * (HEADER_BYTES if path == paths[-1] else HEADER_BYTES + 1))
        aged(store, path, age_ms)
    return paths


def view(store: ObjectStore, number: int, **fields: Any) -> None:
    made = ClusterView(number=number, cluster_id="c", controller="n1", journal="now", nonce=str(number))
    store.put(names.view_object(number), encode_view(msgspec.structs.replace(made, **fields)))


def term(journal: str, number: int = 1, *, lost: bool = False) -> TermEntry:
    return TermEntry(term=number, node="n", data_dir="d", journal=journal, lost=lost)


@pytest.fixture
def lake(store: ObjectStore) -> Path:
    cluster_id(store)
    return Path(store.path(""))  # type: ignore[attr-defined]


@pytest.mark.rule("CS6")
def test_what_no_view_names_goes_once_its_node_is_long_gone(store: ObjectStore, lake: Path) -> None:
    chain = TopicEntry(topic_id="t", chain=(term("lost", lost=True), term("owner", 2)), to=term("next", 3))
    node = NodeEntry(data_dir="d", place="p", journal="away", url="u", state="away")
    view(store, 41, topics={"t": chain}, nodes={"n2": node})
    view(store, 42)
    beat = Beat(beat=1, node="n3", data_dir="d", place="p", journal="beats", url="u")
    store.put(names.beat_object("n3"), encode_beat(beat))
    for journal in ("lost", "owner", "next", "away", "beats"):
        objects(store, "n", journal)
    objects(store, "n", "young", GONE_MS - DAY_MS)
    gone = objects(store, "n", "over")[:-1]
    assert beside(lake, dry_run=True) == set(gone)
    assert beside(lake) == set(gone)
    assert [info.path for info in store.list("wal/n/over")] == [names.journal_object("n", "over", 3)]
    assert beside(lake) == set()


@pytest.mark.rule("CS6")
@pytest.mark.parametrize("told_by", ["view", "settings"])
def test_journals_that_have_a_place_of_their_own_go_there(
    store: ObjectStore, lake: Path, tmp_path: Path, told_by: str
) -> None:
    journals = open_store((tmp_path / "journals").as_uri())
    gone = objects(journals, "n", "over")[:-1]
    kept = objects(store, "n", "over")
    place = journals.root_uri
    view(store, 41, journal_root=place if told_by == "view" else "")
    settings = ServerSettings(data_dir=lake, root=lake.as_uri(), journal_root="" if told_by == "view" else place)
    reports = vacuum_topics(settings)
    assert [report.paths for report in reports if report.topic == BESIDE_TOPICS] == [gone]
    assert len(journals.list("wal")) == 1
    assert [info.path for info in store.list("wal")] == kept, "nobody says that journals are there"


@pytest.mark.rule("CS6")
@pytest.mark.parametrize("was_cluster", [False, True])
def test_of_one_server_goes_what_no_table_names_but_for_its_last_start(
    store: ObjectStore, lake: Path, was_cluster: bool
) -> None:
    if was_cluster:
        view(store, 41, dissolved=True)
    table = claimed(store)
    table.mark(table.snapshot.epochs, {}, "names-them", journals=[(1, "n/needed"), (1, "n/own")])
    gone = objects(store, "n", "over", OLD + DAY_MS)[:-1]
    for journal, age_ms in (("needed", OLD + DAY_MS), ("own", OLD + DAY_MS), ("last", OLD)):
        objects(store, "n", journal, age_ms)
    assert beside(lake) == set(gone)
    assert beside(lake) == set()


@pytest.mark.rule("CS6")
def test_what_has_no_records_is_known_by_its_size() -> None:
    seal = codec.encode_seal(cluster_id="c", journal="n/start", number=3, first=0, nonce=b"n" * codec.NONCE_BYTES)
    assert len(seal.data) == codec.HEADER_BYTES == HEADER_BYTES


@pytest.mark.rule("CS6")
@pytest.mark.parametrize("there", ["damaged", "later", "beat", "table"])
def test_where_views_do_not_say_what_is_needed_everything_stays(store: ObjectStore, lake: Path, there: str) -> None:
    objects(store, "n", "over")
    view(store, 41, format=1 if there != "later" else 99)
    if there == "damaged":
        store.put(names.view_object(40), b"half of a vi")
    if there == "beat":
        store.put(names.beat_object("n3"), b"half of a be")
    if there == "table":
        claimed(store)
        log = Path(store.path(f"{names.topic_path('t')}/{names.DELTA_LOG_FOLDER}"))  # type: ignore[attr-defined]
        for entry in log.iterdir():
            entry.write_bytes(b"half of an en")
    assert beside(lake) == set()


def test_races_of_nodes_that_were_killed_go(store: ObjectStore, lake: Path) -> None:
    old, young = names.probe_object("killed-2"), names.probe_object("now-0")
    for path, age_ms in ((old, 2 * DAY_MS), (young, DAY_MS // 2)):
        store.put(path, b"x")
        aged(store, path, age_ms)
    assert beside(lake) == {old}
