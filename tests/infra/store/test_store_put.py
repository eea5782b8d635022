"""What came of a put that writes only where nothing is: with a real server, and in every weather."""

import gc
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos import seeds
from cut_door import CutDoor
from failing_store import FailingStore, VirtualClock, Weather
from s3_server import S3Server
from s3_storm import Storm

from siltlog.infra.errors import SiltlogError, Unavailable
from siltlog.infra.store.local import FOLDERS_HELD_MAX, LocalStore
from siltlog.infra.store.once import ATTEMPTS_MAX, put_once
from siltlog.infra.store.store import ObjectStore, Put, open_store


@pytest.fixture
def storm(s3_server: S3Server) -> Iterator[Storm]:
    storm = Storm(s3_server.endpoint)
    yield storm
    storm.close()


@pytest.fixture
def store(storm: Storm, s3_server: S3Server, tmp_path: Path) -> ObjectStore:
    return open_store(s3_server.root_uri(tmp_path.name), s3_endpoint=storm.endpoint)


@pytest.mark.rule("CS1")
def test_each_answer_of_a_real_server_is_told_as_it_is_and_asked_for_once(store: ObjectStore, storm: Storm) -> None:
    for fate, put, there in (
        ("", Put.WRITTEN, True),
        ("done", Put.UNKNOWN, True),
        ("not_done", Put.UNKNOWN, False),
        ("slow_down", Put.UNKNOWN, False),
        ("twice", Put.EXISTS, True),
    ):
        storm.fates, storm.puts = [fate], 0
        path = f"fates/{fate or 'none'}"
        assert (fate, store.put_if_absent(path, b"1")) == (fate, put)
        assert (fate, store.size(path) is not None, storm.puts) == (fate, there, 1)
        assert store.put_if_absent(path, b"2") is (Put.EXISTS if there else Put.WRITTEN)
        assert store.get(path) == (b"1" if there else b"2")


@pytest.mark.rule("CS1")
def test_a_conflict_is_tried_again_and_is_no_answer(store: ObjectStore, storm: Storm) -> None:
    storm.fates = ["conflict", "conflict"]
    assert store.put_if_absent("a", b"1") is Put.WRITTEN
    storm.fates = ["conflict"]
    assert store.put_if_absent("a", b"2") is Put.EXISTS
    storm.fates = ["conflict"] * 20
    with pytest.raises(Unavailable, match="ConditionalRequestConflict"):
        store.put_if_absent("b", b"1")
    assert store.size("b") is None


@pytest.mark.usefixtures("s3_server")
def test_what_surely_was_not_sent_is_an_error() -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        open_store("s3://bucket/x", s3_endpoint="http://127.0.0.1:1").put_if_absent("a", b"")


@pytest.mark.rule("CS7")
def test_who_soon_asks_again_is_not_kept_waiting(s3_server: S3Server, storm: Storm, tmp_path: Path) -> None:
    door = CutDoor(int(storm.endpoint.rpartition(":")[2]))
    root = s3_server.root_uri(tmp_path.name)
    prompt = open_store(root, s3_endpoint=door.url, patience_ms=300)
    prompt.put("x", b"1")
    storm.raging = True
    for asked in (prompt.get, prompt.list, prompt.delete, prompt.info):
        storm.refused = 0
        with pytest.raises(Unavailable, match=r"SlowDown|503"):
            asked("x")
        assert storm.refused == 1
    storm.raging = False
    door.stop_up()
    began = time.monotonic()
    with pytest.raises(Unavailable, match="cannot be reached"):
        prompt.put("x", b"2")
    assert prompt.put_if_absent("y", b"2") is Put.UNKNOWN
    assert time.monotonic() - began < 20
    door.close()


def test_a_put_has_no_truth(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="compare it"):
        assert LocalStore(str(tmp_path)).put_if_absent("a", b"")


def test_who_needs_yes_or_no_finds_out_what_a_lost_answer_said(store: ObjectStore, storm: Storm) -> None:
    for number, fates in enumerate((["done"], ["not_done"], ["slow_down"] * 3, ["done", "not_done", "slow_down"])):
        storm.fates = fates
        assert put_once(store, f"once/{number}", b"mine", VirtualClock())
        storm.fates = fates[:-1]
        assert not put_once(store, f"once/{number}", b"another's", VirtualClock())
        assert store.get(f"once/{number}") == b"mine"
    storm.fates = ["slow_down"] * ATTEMPTS_MAX
    clock = VirtualClock()
    began = clock.monotonic()
    with pytest.raises(Unavailable, match=r"whether .*once/none was written is not known"):
        put_once(store, "once/none", b"mine", clock)
    assert clock.monotonic() - began == pytest.approx(3.0)


@pytest.mark.rule("CS2")
def test_on_a_disk_what_exists_is_durable_before_anybody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path / "root"))
    synced: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)

    def put(path: str, came: Put) -> list[str]:
        synced.clear()
        assert store.put_if_absent(path, b"1") is came
        assert synced.pop(0).startswith(".pending-")
        return sorted(synced)

    # Once the folder's own entry is durable nothing above it is synced again.
    assert put("a/b/x", Put.WRITTEN) == ["a", "b", "root"]
    assert put("a/b/y", Put.WRITTEN) == ["b"]
    (tmp_path / "root/a/b/z").write_bytes(b"another's")
    assert put("a/b/z", Put.EXISTS) == ["b", "z"]
    # Others may have removed it and made it anew.
    shutil.rmtree(tmp_path / "root/a")
    assert put("a/b/x", Put.WRITTEN) == ["a", "b", "root"]
    shutil.rmtree(tmp_path / "root/a")
    (tmp_path / "root/a/b").mkdir(parents=True)
    assert put("a/b/x", Put.WRITTEN) == ["a", "b", "root"]
    assert put("a/b/y", Put.WRITTEN) == ["b"]
    assert sorted(path.name for path in (tmp_path / "root/a/b").iterdir()) == ["x", "y"]


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_disk_holds_few_folders_open_and_none_of_a_store_that_is_gone(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "root"))
    opened = _descriptors()
    for number in range(3 * FOLDERS_HELD_MAX):
        assert store.put_if_absent(f"p={number}/x", b"1") is Put.WRITTEN
    assert _descriptors() <= opened + FOLDERS_HELD_MAX
    del store
    gc.collect()
    assert _descriptors() <= opened


@pytest.mark.rule("CS2")
def test_on_a_disk_whose_upper_folder_failed_to_be_synced_nothing_is_taken_for_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path / "root"))
    fsync = os.fsync

    def fail(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "a":
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    assert [store.put_if_absent(f"a/b/{number}", b"1") for number in range(2)] == [Put.UNKNOWN] * 2


@pytest.mark.rule("CS1")
def test_on_a_disk_that_fails_after_the_link_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(str(tmp_path / "root"))
    fsync = os.fsync
    linked = threading.Event()
    link = os.link

    def told(*names: str, **folders: int) -> None:
        link(*names, **folders)
        linked.set()

    def fail(descriptor: int) -> None:
        if linked.is_set():
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "link", told)
    monkeypatch.setattr(os, "fsync", fail)
    assert store.put_if_absent("a/x", b"1") is Put.UNKNOWN
    with pytest.raises(Unavailable):
        store.put_if_absent("a/x", b"1")
    with pytest.raises(Unavailable):
        put_once(LocalStore(str(tmp_path / "root")), "a/x", b"1", VirtualClock())


@pytest.mark.rule("CS1")
@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(40))
def test_in_any_weather_an_object_has_one_writer_and_nobody_is_told_wrong(seed: int) -> None:
    chance = random.Random(seed)
    clock = VirtualClock()
    world = FailingStore(
        chance, clock, Weather(lost=0.15, late=0.1, doubled=0.1, slow_down=0.05, page=2, sorts=bool(seed % 2))
    )
    stores = {caller: world.of(caller) for caller in "abc"}
    told: dict[tuple[str, int], list[Put]] = {}
    for step in range(200):
        caller, number = chance.choice("abc"), chance.randrange(40)
        if step % 50 == 25:
            world.cut("a")
        if step % 50 == 35:
            world.mend("a")
        if step == 120:
            world.slow_down(20)
        put = stores[caller].put_if_absent(f"n/{number:020d}", caller.encode())
        told.setdefault((caller, number), []).append(put)
        clock.advance(chance.random())
    world.land(everything=True)
    world.weather = Weather(page=3, sorts=bool(seed % 2))
    assert {put for puts in told.values() for put in puts} == set(Put)
    for (caller, number), puts in told.items():
        path = f"n/{number:020d}"
        if Put.WRITTEN in puts:
            assert stores["b"].get(path) == caller.encode() and puts.count(Put.WRITTEN) == 1
        if Put.EXISTS in puts:
            assert stores["b"].size(path) == 1
    assert [info.path for info in stores["c"].list("n")] == sorted(world.objects)


def test_a_list_that_does_not_sort_may_miss_what_came_before_what_it_shows() -> None:
    def torn(seed: int, *, sorts: bool) -> bool:
        world = FailingStore(random.Random(seed), VirtualClock(), Weather(page=2, sorts=sorts))
        store, other = world.of("a"), world.of("b")
        count = 0

        def write() -> None:
            nonlocal count
            other.put_if_absent(f"n/{count:03d}", b"")
            count += 1

        for _ in range(6):
            write()
        world.meanwhile = write
        seen = [int(info.path[2:]) for info in store.list("n")]
        return seen != list(range(len(seen)))

    assert any(torn(seed, sorts=False) for seed in range(20))
    assert not any(torn(seed, sorts=True) for seed in range(20))


def test_a_late_put_lands_after_its_caller_gave_up() -> None:
    clock = VirtualClock()
    world = FailingStore(random.Random(1), clock, Weather(late=1.0, late_seconds=10))
    store = world.of("a")
    assert store.put_if_absent("x", b"late") is Put.UNKNOWN
    with pytest.raises(SiltlogError):
        store.delete("y")
    assert world.objects == {}
    clock.advance(10)
    assert world.objects["x"][0] == b"late"


def test_a_store_in_memory_is_a_store() -> None:
    world = FailingStore(random.Random(1), VirtualClock())
    store: ObjectStore = world.of("a")
    assert store.put_if_absent("f/x", b"1") is Put.WRITTEN
    store.put("f/g/y", b"22")
    assert store.put_if_absent("f/x", b"2") is Put.EXISTS
    assert [(info.path, info.size) for info in store.list("f")] == [("f/g/y", 2), ("f/x", 1)]
    assert (store.folders(""), store.folders("f"), store.sizes(["f/x", "none"])) == (["f"], ["g"], [1, None])
    store.delete("f/x")
    with pytest.raises(FileNotFoundError):
        store.get("f/x")
    world.cut("a")
    with pytest.raises(Unavailable):
        store.list("f")
    assert world.of("b").open("f/g/y").read() == b"22"
