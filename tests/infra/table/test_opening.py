"""A power cut leaves the last files of a log empty, short or zeroed: the table opens, or says what is lost."""

import os
import shutil
from pathlib import Path

import pytest
from record_tables import CLOCK, append, claimed, created, new_id, written

from siltlog.infra.errors import CorruptData, UnknownTopic
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.local import LocalStore
from siltlog.infra.table.entries import Torn, parse_entry
from siltlog.infra.table.opening import TORN_ENTRIES_MAX, torn_files
from siltlog.infra.table.table import TopicTable

LOG = "topics/t/_delta_log"


@pytest.fixture
def disk(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "root"))


def entry(disk: LocalStore, version: int) -> Path:
    return disk.path(f"{LOG}/{version:020d}.json")


def set_aside(disk: LocalStore) -> list[str]:
    folder = disk.path("topics/t/_set_aside")
    return sorted(path.name.rpartition(".")[0] for path in folder.iterdir()) if folder.exists() else []


def lengths(content: bytes) -> list[int]:
    """Every class of a cut: nothing, within the first line, at and around each end of a line, in each line, the end."""
    ends = [at for at, byte in enumerate(content) if byte == ord("\n")]
    cuts = {0, 1, 10, len(content) - 1, len(content) - 2}
    for end in ends:
        cuts |= {end - 1, end, end + 1, end + 2}
    cuts |= {start + (end - start) // 2 for start, end in zip([0, *ends], [*ends, len(content)], strict=True)}
    return sorted(cut for cut in cuts if 0 <= cut < len(content))


def kinds_of_commit(disk: LocalStore) -> dict[str, bytes]:
    """An entry of each kind."""
    kinds: dict[str, bytes] = {}
    table = claimed(disk)
    kinds["create"] = entry(disk, 0).read_bytes()
    table.set_config(TopicConfig({"retention.ms": 1}), new_id())
    kinds["configuration"] = entry(disk, table.snapshot.version).read_bytes()
    for _ in range(3):
        append(disk, table, {0: 3, 1: 2})
    kinds["append"] = entry(disk, table.snapshot.version).read_bytes()
    table.rewrite(table.snapshot.version, table.snapshot.files_of(0)[:2], [written(disk, "t", 0, 0, 6)], new_id())
    kinds["rewrite"] = entry(disk, table.snapshot.version).read_bytes()
    table.claim({0: 2, 1: 2}, new_id(), offsets={0: 2**32})
    kinds["claim with a gap"] = entry(disk, table.snapshot.version).read_bytes()
    table.release({0: 2}, new_id())
    kinds["release"] = entry(disk, table.snapshot.version).read_bytes()
    table.delete(new_id())
    kinds["delete"] = entry(disk, table.snapshot.version).read_bytes()
    kinds["create again"] = entry(disk, created(disk).snapshot.version).read_bytes()
    return kinds


@pytest.mark.rule("T21")
def test_every_cut_of_every_commit_is_known(disk: LocalStore) -> None:

    for kind, content in kinds_of_commit(disk).items():
        parse_entry("t", "x", 1, content)
        for length in {*lengths(content), *range(0, len(content), 7)}:
            # Without its last line end an entry is still whole.
            if content[:length].rstrip() == content.rstrip():
                continue
            with pytest.raises(Torn):
                parse_entry("t", "x", 1, content[:length])
                pytest.fail(f"{kind} cut at {length} passed")


@pytest.mark.rule("T13")
def test_a_half_written_last_commit_is_set_aside(disk: LocalStore, tmp_path: Path) -> None:
    table = claimed(disk)
    append(disk, table, {0: 3, 1: 2})
    before = table.snapshot
    append(disk, table, {0: 4, 1: 1})
    version = table.snapshot.version
    whole = entry(disk, version).read_bytes()
    kept = tmp_path / "kept"
    shutil.copytree(disk.path("."), kept)
    contents = [whole[:length] for length in lengths(whole)]
    contents += [bytes(len(whole)), whole[:100] + bytes(len(whole) - 100), whole[:-50] + bytes(50)]
    for number, content in enumerate(contents):
        root = tmp_path / f"cut-{number}"
        shutil.copytree(kept, root)
        cut = LocalStore(str(root))
        entry(cut, version).write_bytes(content)
        opened = TopicTable.open(cut, "t", CLOCK)
        assert opened.snapshot == before
        assert set_aside(cut) == [f"{version:020d}.json"]
        moved = next(cut.path("topics/t/_set_aside").iterdir())
        assert moved.read_bytes() == content
        append(cut, opened, {0: 4, 1: 1})
        assert dict(TopicTable.open(cut, "t", CLOCK).snapshot.offsets) == {0: 7, 1: 3}
        shutil.rmtree(root)


def test_a_half_written_creation_was_no_creation(disk: LocalStore) -> None:
    created(disk)
    content = entry(disk, 0).read_bytes()
    for length in (0, 5, len(content) // 2, len(content) - 1):
        entry(disk, 0).write_bytes(content[:length])
        with pytest.raises(UnknownTopic):
            TopicTable.open(disk, "t", CLOCK)
    assert created(disk).snapshot.version == 0
    assert len(set_aside(disk)) == 4


@pytest.fixture(scope="module")
def checkpointed(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    """The root of a table with an older checkpoint, entries, a newer checkpoint, and one more entry."""
    disk = LocalStore(str(tmp_path_factory.mktemp("checkpointed")))
    table = claimed(disk)
    append(disk, table, {0: 3})
    table.checkpoint()
    append(disk, table, {0: 3, 1: 1})
    append(disk, table, {0: 3})
    table.checkpoint()
    append(disk, table, {0: 3})
    return disk


@pytest.mark.rule("T13")
@pytest.mark.parametrize("hint", ["newer", "older", "short", "empty", "zeros", "absent"])
@pytest.mark.parametrize("cut", [None, 0, 1, 8, 0.3, 0.9, -1, "zeros", "zeroed page"])
def test_a_half_written_checkpoint_is_set_aside(
    checkpointed: LocalStore, tmp_path: Path, hint: str, cut: float | str | None
) -> None:
    snapshot = TopicTable.open(checkpointed, "t", CLOCK).snapshot
    shutil.copytree(checkpointed.path("."), tmp_path / "root")
    disk = LocalStore(str(tmp_path / "root"))
    last = disk.path(f"{LOG}/_last_checkpoint")
    newer, older = (disk.path(f"{LOG}/{version:020d}.checkpoint.parquet") for version in (4, 2))
    assert newer.exists() and older.exists()
    content = newer.read_bytes()
    if cut == "zeros":
        newer.write_bytes(bytes(len(content)))
    elif cut == "zeroed page":
        newer.write_bytes(content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :])
    elif isinstance(cut, float):
        newer.write_bytes(content[: int(len(content) * cut)])
    elif isinstance(cut, int):
        newer.write_bytes(content[:cut])
    named = last.read_bytes()
    if hint == "older":
        last.write_bytes(named.replace(b'"version":4', b'"version":2'))
    elif hint == "absent":
        last.unlink()
    elif hint != "newer":
        last.write_bytes({"short": named[:12], "empty": b"", "zeros": bytes(len(named))}[hint])
    opened = TopicTable.open(disk, "t", CLOCK)
    assert opened.snapshot == snapshot
    aside = [] if cut is None else [newer.name]
    if hint in ("short", "empty", "zeros") or (hint == "newer" and cut is not None):
        aside.append("_last_checkpoint")
    assert set_aside(disk) == sorted(aside)
    append(disk, opened, {0: 1})
    opened.maintain()
    assert TopicTable.open(disk, "t", CLOCK).snapshot == opened.snapshot
    assert torn_files(disk, "t") == []


def test_what_was_built_on_a_half_written_commit_goes_with_it(disk: LocalStore) -> None:
    table = claimed(disk)
    append(disk, table, {0: 3})
    before = table.snapshot
    for _ in range(TORN_ENTRIES_MAX):
        append(disk, table, {0: 3})
    entry(disk, before.version + 1).write_bytes(b"")
    assert TopicTable.open(disk, "t", CLOCK).snapshot == before
    assert len(set_aside(disk)) == TORN_ENTRIES_MAX


def test_damage_that_no_power_cut_makes_is_refused(disk: LocalStore) -> None:
    table = claimed(disk)
    for _ in range(TORN_ENTRIES_MAX + 1):
        append(disk, table, {0: 3})
    version = table.snapshot.version
    first = entry(disk, version - TORN_ENTRIES_MAX)
    content = first.read_bytes()
    first.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptData, match=f"{first.name}.*cut short, with {TORN_ENTRIES_MAX} entries after it"):
        TopicTable.open(disk, "t", CLOCK)
    first.write_bytes(content)
    last = entry(disk, version)
    content = last.read_bytes()
    last.write_bytes(content.replace(b'{"commitInfo"', b'{commitInfo"', 1))
    with pytest.raises(CorruptData, match="line 1"):
        TopicTable.open(disk, "t", CLOCK)
    assert set_aside(disk) == []


def test_what_a_killed_writer_left_does_not_matter(disk: LocalStore) -> None:
    table = claimed(disk)
    append(disk, table, {0: 3})
    version = table.snapshot.version
    entry(disk, version + 1).with_name(f"{version + 1:020d}.json#1").write_bytes(b'{"commitInfo"')
    disk.path(f"{LOG}/.pending-1").write_bytes(b"")
    opened = TopicTable.open(disk, "t", CLOCK)
    assert opened.snapshot == table.snapshot and set_aside(disk) == []
    append(disk, opened, {0: 3})


def test_a_missing_or_short_file_of_the_newest_commits_is_named(disk: LocalStore) -> None:
    table = claimed(disk)
    append(disk, table, {0: 3})
    file = append(disk, table, {1: 3})[0]
    path = disk.path(f"topics/t/{file.path}")
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(CorruptData, match=f"partition 1, offsets 0 to 2, has {len(content) - 1} bytes"):
        TopicTable.open(disk, "t", CLOCK)
    path.unlink()
    with pytest.raises(CorruptData) as caught:
        TopicTable.open(disk, "t", CLOCK)
    assert str(path) in caught.value.detail and "is missing" in caught.value.detail
    assert caught.value.members["partition"] == 1
    assert (caught.value.members["first_offset"], caught.value.members["last_offset"]) == (0, 2)


def test_a_missing_entry_is_named(disk: LocalStore) -> None:
    table = claimed(disk)
    for _ in range(3):
        append(disk, table, {0: 3})
    entry(disk, 2).unlink()
    with pytest.raises(CorruptData, match="topics/t/_delta_log"):
        TopicTable.open(disk, "t", CLOCK)


def test_opening_syncs_the_newest_commits_and_their_files(disk: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = claimed(disk)
    table.set_config(TopicConfig({"retention.ms": 1}), new_id())
    files = append(disk, table, {0: 3, 1: 3})
    synced: set[str] = set()
    real = os.fsync

    def record(descriptor: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    TopicTable.open(disk, "t", CLOCK)
    assert {str(disk.path(f"topics/t/{file.path}")) for file in files} <= synced
    assert {str(entry(disk, version)) for version in range(4)} <= synced
    assert {str(disk.path(path)) for path in (".", "topics", "topics/t", LOG, "topics/t/partition=0")} <= synced


@pytest.mark.rule("T6")
def test_the_order_of_syncs_of_a_commit(disk: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and folders before the commit; the entry and its folder after it and before anybody is told."""
    table = claimed(disk)
    seen: list[tuple[str, bool]] = []
    version = table.snapshot.version + 1
    real = os.fsync

    def record(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        seen.append((str(path.relative_to(disk.path("."))), entry(disk, version).exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    file = append(disk, table, {0: 3})[0]
    before = [path for path, committed in seen if not committed]
    after = [path for path, committed in seen if committed]
    assert before == [f"topics/t/{file.path}", "topics/t/partition=0", "topics/t", "topics", "."]
    assert after == [f"{LOG}/{version:020d}.json", LOG, "topics/t", "topics", "."]
