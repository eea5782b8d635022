"""A consumer that reads the table's files by itself, beside all that others do to them."""

import asyncio
import io
import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pytest
from chaos import seeds
from fake_log import FakeLog, FakePartition
from fake_world import World
from s3_server import S3Server

from siltlog.consumers.library.sources import root as table_root
from siltlog.consumers.library.sources import table as table_source
from siltlog.consumers.library.sources.choice import TABLE
from siltlog.consumers.library.sources.server import Fetched, FetchPlan, Wanted
from siltlog.consumers.library.sources.table import TableSource
from siltlog.consumers.reading.fetch import FetchPosition
from siltlog.consumers.reading.files import FileLister
from siltlog.consumers.reading.waiting import Waits
from siltlog.infra import names
from siltlog.infra.client.address import S3Address
from siltlog.infra.client.core import Request, Response
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.client.transport import Caller
from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import FETCH_SCHEMA
from siltlog.infra.errors import ConfigError, CorruptData, OffsetOutOfRange, Unavailable, UnknownTopic
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.store import ObjectStore, open_store

CLUSTER = "6a9d7a0e-4a5e-4d35-9d8e-3a0d7f3b1c55"


class ManualClock(SystemClock):
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Listings:
    """A transport to a server that does nothing but list files; the world may move before and after each answer."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.cluster_id = CLUSTER
        self.asked = 0

    def send(self, url: str, request: Request) -> Response:
        assert (request.method, request.path) == ("POST", "/v1/files")
        self.asked += 1
        document = msgspec.json.decode(request.body[0])
        positions = [
            FetchPosition(part["topic"], part["partition"], part["offset"], topic_id=part.get("topic_id"))
            for part in document["partitions"]
        ]

        async def answer() -> bytes:
            lister = FileLister(self.log, Waits(), self.cluster_id)
            await self.log.pause()
            lists = await lister.list(positions, max_files=document["max_files"], wait_ms=document["wait_ms"])
            await self.log.pause()
            return msgspec.json.encode(lists)

        return Response(200, {"content-type": names.MEDIA_JSON}, asyncio.run(answer()))

    def close(self) -> None:
        """Nothing is open."""


class Rig:
    def __init__(self, store: ObjectStore, s3: S3Address | None = None) -> None:
        self.log = FakeLog(store)
        self.log.store.put(names.CLUSTER_ID_OBJECT, CLUSTER.encode())
        self.topic = self.log.create("flights", 4)
        self.clock = ManualClock()
        self.listings = Listings(self.log)
        caller = Caller(Endpoints("http://127.0.0.1:1"), self.listings, self.clock, retry_timeout_ms=0)
        self.source = TableSource(caller, self.clock, s3 or S3Address())

    def read(
        self, *wanted: Wanted, records_max: int = 1 << 40, bytes_max: int = 1 << 40, wait_ms: int = 0
    ) -> list[Fetched]:
        return self.source.read(FetchPlan(TABLE, wanted, "table", records_max, bytes_max, wait_ms))

    def fill(self, partition: int, files: int, rows: int = 10) -> FakePartition:
        view = self.topic.partitions[partition]
        for _ in range(files):
            first = view.high_watermark
            view.append([b"value %d" % offset for offset in range(first, first + rows)])
            view.flush()
        return view

    def path(self, partition: int, number: int) -> Path:
        path = f"{names.topic_path('flights')}/{self.topic.snapshot.files_of(partition)[number].path}"
        return Path(unquote(urlsplit(self.log.store.uri(path)).path))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(LocalStore(str(tmp_path)))
    yield rig
    rig.source.close()


def wanted(partition: int, offset: int = 0, topic_id: str | None = None) -> Wanted:
    return Wanted(TopicPartition("flights", partition), offset, topic_id, None)


def offsets(found: Fetched) -> list[int]:
    return [] if found.rows is None else found.rows.column("offset").to_pylist()


def check_rows(rows: pa.Table) -> list[int]:
    assert rows.schema == FETCH_SCHEMA
    assert set(rows.column("topic").to_pylist()) == {"flights"}
    numbers: list[int] = rows.column("offset").to_pylist()
    assert rows.column("value").to_pylist() == [b"value %d" % number for number in numbers]
    return numbers


@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(8))
def test_no_offset_is_skipped_or_given_twice(rig: Rig, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_source, "LIST_FILES_MAX", [2, 5, 256][seed % 3])
    dice = random.Random(seed)
    view = rig.topic.partitions[0]
    world = World(rig.log, view, seed)
    offset = 0
    seen: list[int] = []
    excused: set[int] = set()
    for turn in range(140):
        asyncio.run(world.step())
        rig.clock.now += dice.choice((0, 0, 0.2, 6))
        if turn == 100:
            world.flush()
            view.flush()
            rig.log.pause = still
            world.step = still  # type: ignore[method-assign]
        for found in rig.read(wanted(0, offset), records_max=dice.choice((3, 30, 1 << 30))):
            if found.error is not None:
                assert isinstance(found.error, OffsetOutOfRange)
                assert found.bounds is not None
                assert offset < found.bounds.log_start_offset
                excused.update(range(offset, found.bounds.log_start_offset))
                offset = found.bounds.log_start_offset
                continue
            if found.rows is not None:
                numbers = check_rows(found.rows)
                assert offset <= numbers[0]
                assert numbers[-1] < found.next_offset
                seen += numbers
            assert found.next_offset > offset
            offset = found.next_offset
    assert offset == view.bounds().table_offset
    assert seen == sorted(set(seen))
    assert set(world.published) - set(seen) <= world.compacted | excused
    assert len(seen) > 100


async def still() -> None:
    """The world has ended."""


def test_what_was_read_ahead_is_given_next(rig: Rig) -> None:
    rig.fill(0, 6)
    (first,) = rig.read(wanted(0), records_max=7)
    assert (offsets(first), first.next_offset) == ([*range(7)], 7)
    (second,) = rig.read(wanted(0, 7), records_max=30)
    assert offsets(second) == [*range(7, 37)]
    (rest,) = rig.read(wanted(0, 37))
    assert (offsets(rest), rest.next_offset) == ([*range(37, 60)], 60)
    assert rig.listings.asked == 1
    assert rig.read(wanted(0, 60)) == []


@pytest.mark.rule("R4")
def test_a_gap_at_the_end_of_a_list_is_passed(rig: Rig) -> None:
    view = rig.fill(0, 3)
    view.rewrite(rig.topic.snapshot.files_of(0), without=[28, 29], vacuum=True)
    (found,) = rig.read(wanted(0))
    assert (offsets(found), found.next_offset) == ([*range(28)], 30)


def test_a_seek_begins_anew(rig: Rig) -> None:
    rig.fill(0, 3)
    rig.read(wanted(0), records_max=5)
    for offset in (25, 3, 3):
        (found,) = rig.read(wanted(0, offset))
        assert (offsets(found), found.next_offset) == ([*range(offset, 30)], 30)


def test_every_partition_has_its_turn(rig: Rig) -> None:
    for partition in range(4):
        rig.fill(partition, 5)
    at = dict.fromkeys(range(4), 0)
    turns = 0
    while any(offset < 50 for offset in at.values()):
        turns += 1
        for found in rig.read(*(wanted(partition, offset) for partition, offset in at.items()), records_max=20):
            partition = found.at.partition
            assert offsets(found) == [*range(at[partition], found.next_offset)]
            at[partition] = found.next_offset
        assert turns < 50
    # Offsets that were handed out are not read again.
    assert rig.read(*(wanted(partition, 50) for partition in range(4))) == []


def test_limits_hold(rig: Rig) -> None:
    rig.fill(0, 2, rows=1_000)
    (found,) = rig.read(wanted(0), bytes_max=10_000)
    assert found.rows is not None
    assert 1 < found.rows.num_rows < 1_000
    assert found.rows.nbytes <= 2 * 10_000
    (one,) = rig.read(wanted(0, found.next_offset), bytes_max=1)
    assert offsets(one) == [found.next_offset]


def test_columns_that_files_leave_out_are_null_or_as_stored(rig: Rig) -> None:
    view = rig.topic.partitions[0]
    view.append([b"plain"])
    view.flush()
    view.append([None, b"x"], keys=[b"k", None], headers=[[("a", b"1"), ("b", None)], None])
    view.flush()
    (found,) = rig.read(wanted(0))
    assert found.rows is not None
    assert found.rows.column("key").to_pylist() == [None, b"k", None]
    assert found.rows.column("value").to_pylist() == [b"plain", None, b"x"]
    headers = found.rows.column("headers").to_pylist()
    assert headers == [None, [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None]
    assert found.rows.column("partition").to_pylist() == [0, 0, 0]


@pytest.mark.rule("R2")
def test_lists_are_looked_at_again(rig: Rig) -> None:
    """What others changed meanwhile holds a few seconds later: the topic is another, the log start has moved."""
    view = rig.fill(0, 40)
    (found,) = rig.read(wanted(0, 0, rig.topic.topic_id), records_max=1)
    view.retain(300)
    offset = found.next_offset
    rig.clock.now += table_source.LIST_S_MAX + 1
    given = 0
    while found.error is None:
        (found,) = rig.read(wanted(0, offset, rig.topic.topic_id))
        given += len(offsets(found))
        offset = found.next_offset
    assert isinstance(found.error, OffsetOutOfRange)
    assert (found.bounds or (0,))[0] == 300
    assert given < 10 * (table_source.LANES_MAX + 1)


@pytest.mark.rule("R2")
def test_another_topic_of_that_name_is_refused(rig: Rig) -> None:
    rig.fill(0, 2)
    former = rig.topic.topic_id
    rig.log.delete("flights")
    rig.topic = rig.log.create("flights", 4)
    rig.fill(0, 1)
    (found,) = rig.read(wanted(0, 0, former))
    assert isinstance(found.error, UnknownTopic)
    assert found.rows is None
    (found,) = rig.read(wanted(0, 0, rig.topic.topic_id))
    assert offsets(found) == [*range(10)]


class TestDamage:
    def test_it_is_named_after_all_that_lies_before(self, rig: Rig) -> None:
        rig.fill(0, 3, rows=100)
        damaged = rig.topic.snapshot.files_of(0)[1]
        content = bytearray(rig.path(0, 1).read_bytes())
        content[len(content) // 3] ^= 1
        rig.path(0, 1).write_bytes(content)
        offset, seen = 0, []
        for _ in range(6):
            found = rig.read(wanted(0, offset))
            assert len(found) == 1
            seen += offsets(found[0])
            offset = found[0].next_offset
        assert seen == [*range(100)]
        for _ in range(2):
            (again,) = rig.read(wanted(0, offset))
            assert isinstance(again.error, CorruptData)
            expected = {"topic": "flights", "partition": 0, "first_offset": 100, "last_offset": 199}
            assert again.error.members == {**expected, "path": f"{names.topic_path('flights')}/{damaged.path}"}
            assert again.next_offset == 100

    @pytest.mark.rule("R3")
    def test_a_file_that_is_gone_for_good_is_damage(self, rig: Rig) -> None:
        rig.fill(0, 1)
        rig.path(0, 0).unlink()
        (found,) = rig.read(wanted(0))
        assert isinstance(found.error, CorruptData)
        assert "is missing" in found.error.detail

    @pytest.mark.rule("R3")
    def test_a_file_that_was_replaced_is_not(self, rig: Rig) -> None:
        view = rig.fill(0, 8)
        (found,) = rig.read(wanted(0), records_max=5)
        view.rewrite(rig.topic.snapshot.files_of(0)[1:], without=[33], vacuum=True)
        seen, offset = offsets(found), found.next_offset
        while offset < 80:
            (found,) = rig.read(wanted(0, offset))
            assert found.error is None
            seen += offsets(found)
            offset = found.next_offset
        # What was open already is of the version before.
        assert set(range(80)) - set(seen) <= {33}
        assert seen == sorted(set(seen))

    def test_a_path_out_of_the_root_is_not_opened(self, rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> None:
        rig.fill(0, 1)
        with pytest.raises(ConfigError, match="not below the root"):
            table_source.TableRoot(rig.log.store.root_uri, S3Address()).open("topics/../../etc/passwd")


@pytest.mark.rule("R7")
class TestEnd:
    """Threads of Arrow that come back to Python while a consumer's process ends abort it."""

    def test_files_on_a_disk_are_read_without_python(self, tmp_path: Path) -> None:
        (tmp_path / "there").touch()
        with table_source.TableRoot(tmp_path.as_uri(), S3Address()).open("there") as file:
            assert not isinstance(file, pa.PythonFile)

    @pytest.mark.s3
    def test_files_on_s3_are_read_without_python(self, s3_server: S3Server) -> None:
        root, address = s3_server.root_uri("native"), S3Address(s3_server.endpoint, s3_server.region)
        open_store(root, s3_endpoint=s3_server.endpoint, s3_region=s3_server.region).put("there", b"1")
        with table_source.TableRoot(root, address).open("there") as file:
            assert not isinstance(file, pa.PythonFile)
            assert file.read() == b"1"


class TestReach:
    @pytest.mark.rule("R1")
    def test_another_cluster_at_the_same_place(self, rig: Rig) -> None:
        rig.fill(0, 1)
        rig.listings.cluster_id = "another"
        with pytest.raises(ConfigError, match="is another place here than for the server"):
            rig.read(wanted(0))

    def test_no_such_folder_here(self, rig: Rig) -> None:
        rig.fill(0, 1)
        rig.log.store.root_uri = "file:///nowhere/at/all"
        with pytest.raises(ConfigError, match="file:///nowhere/at/all cannot be read from here"):
            rig.read(wanted(0))

    @pytest.mark.s3
    def test_on_s3(self, s3_server: S3Server, tmp_path: Path) -> None:
        s3 = S3Address(s3_server.endpoint, s3_server.region)
        root = s3_server.root_uri(f"files of/{tmp_path.name}")
        rig = Rig(open_store(root, s3_endpoint=s3.endpoint, s3_region=s3.region), s3)
        view = rig.fill(0, 5, rows=100)
        (found,) = rig.read(wanted(0), records_max=250)
        view.rewrite(rig.topic.snapshot.files_of(0)[2:], vacuum=True)
        seen, offset = offsets(found), found.next_offset
        while offset < 500:
            (found,) = rig.read(wanted(0, offset))
            assert found.error is None
            seen += offsets(found)
            offset = found.next_offset
        assert seen == [*range(500)]
        rig.topic.delete_objects(rig.topic.snapshot.files_of(0)[:1])
        (found,) = rig.read(wanted(0))
        assert isinstance(found.error, CorruptData)
        rig.source.close()

    @pytest.mark.rule("R6")
    def test_a_store_that_fails_is_not_damage(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        rig.fill(0, 2)
        (found,) = rig.read(wanted(0), records_max=3)

        class Lost(io.RawIOBase):
            def readable(self) -> bool:
                return True

            def seekable(self) -> bool:
                return True

            def seek(self, offset: int, whence: int = 0) -> int:
                raise OSError("When reading information for key: AWS Error NETWORK_CONNECTION during HeadObject")

        with monkeypatch.context() as broken:
            broken.setattr(table_root.TableRoot, "open", lambda self, path: pa.PythonFile(Lost(), mode="r"))
            (failed,) = rig.read(wanted(0, 7))
            assert isinstance(failed.error, Unavailable)
            assert (failed.error.retryable, failed.next_offset) == ("yes", 7)
        (found,) = rig.read(wanted(0, 7))
        assert offsets(found) == [*range(7, 20)]

    def test_an_s3_that_is_away(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(table_root, "ATTEMPTS_MAX", 1)
        rig = Rig(LocalStore(str(tmp_path)), S3Address("http://127.0.0.1:1", "us-east-1"))
        rig.fill(0, 1)
        rig.log.store.root_uri = "s3://bucket/lake"
        with pytest.raises(ConfigError, match="the tables at s3://bucket/lake cannot be read from here"):
            rig.read(wanted(0))
        rig.source.close()

    def test_a_location_that_is_neither(self, rig: Rig) -> None:
        rig.log.store.root_uri = "gs://bucket/lake"
        with pytest.raises(ConfigError, match="neither on a disk nor on S3"):
            rig.read(wanted(0))
