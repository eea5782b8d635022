"""Whether a root may be shared: races of real stores and of those that lie, and file systems by their names."""

import random
import threading
from pathlib import Path

import pytest
from chaos import seeds
from failing_store import FailingStore, VirtualClock, Weather
from s3_server import S3Server

from siltlog.infra.errors import ConfigError, Unavailable
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.probe import Answer, check_file_system, check_race, check_shared_root, file_system, race
from siltlog.infra.store.store import ObjectStore, Put, open_store

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:40 / /mnt/shared rw,relatime shared:9 - nfs4 10.0.0.9:/lakes rw,vers=4.2
31 21 0:41 / /mnt/my\\040bucket rw,nosuid - fuse.s3fs s3fs rw,user_id=0
32 21 0:42 / /mnt/over rw - nfs somewhere:/ rw
33 21 8:2 / /mnt/over rw - xfs /dev/sda2 rw
34 30 8:3 / /mnt/shared/fast rw - xfs /dev/nvme0 rw
"""


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return open_store(tmp_path.as_uri())
    server: S3Server = request.getfixturevalue("s3_server")
    return open_store(server.root_uri(f"probe/{tmp_path.name}"), s3_endpoint=server.endpoint)


@pytest.mark.slow
@pytest.mark.rule("CS4")
def test_a_store_with_one_winner_may_be_shared_and_nothing_is_left_there(store: ObjectStore) -> None:
    check_shared_root(store, "start-1")
    assert store.list("cluster") == []


class Overwriting(LocalStore):
    """Looks, and then writes: as good as a put where nothing is, until two do it at once."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.together = threading.Barrier(2)

    def put_if_absent(self, path: str, data: bytes) -> Put:
        if self.size(path) is not None:
            return Put.EXISTS
        try:
            self.together.wait(0.2)
        except threading.BrokenBarrierError:
            """Nobody came at the same time."""
        self.put(path, data)
        return Put.WRITTEN


@pytest.mark.rule("CS4")
def test_a_store_that_lets_two_win_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"told [2-8] of 9 racers that each had written"):
        check_shared_root(Overwriting(str(tmp_path)), "start-1")
    assert LocalStore(str(tmp_path)).list("cluster") == []


@pytest.mark.rule("CS4")
def test_what_racers_may_be_told(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("x", b"a")
    check_race(store, "x", [Answer(Put.WRITTEN, b"a"), Answer(Put.EXISTS, b"b")])
    check_race(store, "x", [Answer(Put.UNKNOWN, b"a"), Answer(Put.EXISTS, b"b"), Answer(Put.UNKNOWN, b"c")])
    for wrong, answers in (
        ("written over", [Answer(Put.WRITTEN, b"b"), Answer(Put.UNKNOWN, b"a")]),
        ("none of 1 racers", [Answer(Put.EXISTS, b"b")]),
        ("told 2 of 2", [Answer(Put.WRITTEN, b"a"), Answer(Put.WRITTEN, b"a")]),
    ):
        with pytest.raises(ConfigError, match=wrong):
            check_race(store, "x", answers)
    with pytest.raises(ConfigError, match="has None"):
        check_race(store, "gone", [Answer(Put.WRITTEN, b"a")])


@pytest.mark.rule("CS4")
@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(20))
def test_weather_refuses_nobody(seed: int) -> None:
    weather = Weather(lost=0.3, late=0.1, doubled=0.0, slow_down=0.1, late_seconds=0.0)
    world = FailingStore(random.Random(seed), VirtualClock(), weather)
    answers = race([world.of("a")], "x")
    for name in "bcd":
        answers += race([world.of(name)], "x")
    world.weather = Weather()
    world.land(everything=True)
    if world.objects:
        check_race(world.of("a"), "x", answers)
    else:
        with pytest.raises(Unavailable, match="does not answer"):
            check_race(world.of("a"), "x", answers)


@pytest.mark.rule("CS5")
@pytest.mark.parametrize(
    ("folder", "mounted"),
    [
        ("/srv/lake", ("/", "ext4")),
        ("/mnt/shared", ("/mnt/shared", "nfs4")),
        ("/mnt/shared/lake", ("/mnt/shared", "nfs4")),
        ("/mnt/shared/fast/lake", ("/mnt/shared/fast", "xfs")),
        ("/mnt/sharedness", ("/", "ext4")),
        ("/mnt/my bucket/lake", ("/mnt/my bucket", "fuse.s3fs")),
        ("/mnt/over/lake", ("/mnt/over", "xfs")),
    ],
)
def test_a_folder_is_on_what_is_mounted_nearest_above_it(folder: str, mounted: tuple[str, str], tmp_path: Path) -> None:
    assert file_system(folder, MOUNTS.splitlines()) == mounted
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    if mounted[1].startswith(("nfs", "fuse")):
        with pytest.raises(ConfigError, match=f"lies on {mounted[0]}, which is {mounted[1]}: nodes cannot share"):
            check_file_system(Path(folder), mounts)
    else:
        check_file_system(Path(folder), mounts)


def test_where_mounts_are_not_told_nothing_is_refused(tmp_path: Path) -> None:
    check_file_system(tmp_path, tmp_path / "none")
    assert file_system("/x", ["", "no mount"]) is None
