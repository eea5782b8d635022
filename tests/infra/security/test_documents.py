import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, Refused, Unavailable
from siltlog.infra.security.access import Binding
from siltlog.infra.security.document import FORMAT, AccessDocument, seal, unseal
from siltlog.infra.security.documents import KEPT_MS, KEPT_VERSIONS, LIST_SECONDS, AccessDocuments
from siltlog.infra.store.local import LocalStore
from siltlog.infra.telemetry import logger

KEY, CLUSTER_ID = bytes(range(32)), "c1"


class SteppedClock(SystemClock):
    """Monotonic time goes on when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds


class World:
    """A bucket, and the data dirs of nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "root").mkdir()
        self.store = LocalStore(str(folder / "root"))
        self.clock = SteppedClock()

    def node(self, name: str = "a", key: bytes = KEY, cluster_id: str = CLUSTER_ID) -> AccessDocuments:
        return AccessDocuments(
            self.store, cluster_id, key, self.folder / f"seen-{name}", self.clock, logger("error", "json")
        )

    def path(self, number: int) -> Path:
        return self.folder / "root" / names.access_object(number)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def binding(name: str) -> Any:
    """A change that adds one."""

    def change(document: AccessDocument) -> AccessDocument:
        added = {**document.bindings, name: Binding(f"key:{name}", "viewer")}
        return msgspec.structs.replace(document, bindings=added)

    return change


def test_nothing_was_written_yet(world: World) -> None:
    assert world.node().open().document == AccessDocument(CLUSTER_ID)


def test_what_is_written_is_found_by_the_next_start_and_by_others(world: World) -> None:
    one, other = world.node("a"), world.node("b")
    one.open()
    other.open()
    for name in ("x", "y", "z"):
        one.write(binding(name))
    assert other.follow().document.bindings.keys() == {"x", "y", "z"}
    assert world.node("a").open() == one.current == other.current == world.node("c").open()
    assert one.current.document.number == 3


def test_two_that_change_at_once_both_count(world: World) -> None:
    one, other = world.node("a"), world.node("b")
    one.open()
    other.open()
    one.write(binding("x"))
    other.write(binding("y"))
    assert one.follow().document.bindings.keys() == {"x", "y"}


def test_a_change_of_a_version_that_is_not_the_newest_is_refused(world: World) -> None:
    one, other = world.node("a"), world.node("b")
    one.write(binding("x"))
    with pytest.raises(Refused) as refused:
        other.write(binding("y"), expected=0)
    assert refused.value.error_code == "access_changed"
    assert refused.value.members == {"version": 1}
    assert other.write(binding("y"), expected=1).document.number == 2


@pytest.mark.rule("A33")
def test_who_writes_the_bucket_grants_himself_nothing(world: World) -> None:
    node = world.node()
    node.write(binding("x"))
    forged = AccessDocument(CLUSTER_ID, 2, node.current.mac, 0, {}, {"b": Binding("key:thief", "admin")})
    for content in (seal(forged, bytes(32)), b"", b"{}", b'{"mac":"","document":{}}'):
        world.path(2).write_bytes(content)
        world.clock.seconds += LIST_SECONDS + 1
        assert node.follow().document.bindings.keys() == {"x"}
        assert world.node("b").open().document.bindings.keys() == {"x"}
    # It keeps its number: the next version comes after it, and is found.
    assert node.write(binding("y")).document.number == 3
    assert world.node("c").open().document.bindings.keys() == {"x", "y"}


@pytest.mark.parametrize("at", ["document", "mac"])
def test_each_bit_is_sealed(at: str) -> None:
    content = seal(AccessDocument(CLUSTER_ID, 1, bindings={"b": Binding("key:a", "viewer")}), KEY)
    unseal(content, KEY, CLUSTER_ID, 1)
    start = content.index(f'"{at}"'.encode()) + len(at) + 3
    end = content.index(b'","document"') if at == "mac" else len(content) - 1
    for position in range(start + (at == "mac"), end):
        changed = content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]
        with pytest.raises(ValueError, match=r"."):
            unseal(changed, KEY, CLUSTER_ID, 1)


def test_a_document_of_another_cluster_or_number(world: World) -> None:
    content = seal(AccessDocument(CLUSTER_ID, 4), KEY)
    for cluster_id, number in (("c2", 4), (CLUSTER_ID, 5)):
        with pytest.raises(ValueError, match="it was sealed as version 4 of cluster c1"):
            unseal(content, KEY, cluster_id, number)


def test_a_later_format_is_refused_and_no_earlier_version_stands_in(world: World) -> None:
    node, other = world.node(), world.node("b")
    node.write(binding("x"))
    other.open()
    content = seal(AccessDocument(CLUSTER_ID, 2, format=FORMAT + 1), KEY)
    world.path(2).write_bytes(content)
    refused = rf"cluster/access/0+2 is of format {FORMAT + 1}, .* up to {FORMAT}: start the newer release"
    for look in (world.node("c").open, node.follow, other.follow):
        with pytest.raises(ConfigError, match=refused):
            look()
    assert node.current.document.number == 1


@pytest.mark.rule("A33")
def test_an_older_document_that_was_put_back_is_no_start(world: World) -> None:
    node = world.node()
    node.write(binding("x"))
    node.write(binding("y"))
    kept = world.path(2).read_bytes()
    world.path(2).unlink()
    with pytest.raises(ConfigError, match=r"is version 1, and this node has seen 2: an older one was put back"):
        world.node().open()
    world.path(2).write_bytes(kept)
    assert world.node().open().document.number == 2


def test_another_document_of_the_same_number_is_no_start(world: World) -> None:
    world.node("a").write(binding("x"))
    world.path(1).unlink()
    world.node("b").write(binding("y"))
    with pytest.raises(ConfigError, match="an older one was put back"):
        world.node("a").open()


def test_a_running_node_never_goes_back(world: World) -> None:
    node = world.node()
    node.write(binding("x"))
    node.write(binding("y"))
    world.path(2).unlink()
    world.clock.seconds += LIST_SECONDS + 1
    assert node.follow().document.bindings.keys() == {"x", "y"}
    # What it writes stands above what it knew.
    assert node.write(binding("z")).document.number == 3


def test_another_secret_is_no_start(world: World) -> None:
    world.node("a").write(binding("x"))
    with pytest.raises(ConfigError, match="give it the secret file of the cluster"):
        world.node("b", key=bytes(32)).open()


def test_who_slept_finds_the_newest(world: World) -> None:
    sleeper, node = world.node("a"), world.node("b")
    sleeper.open()
    for number in range(5):
        node.write(binding(f"x{number}"))
    for number in range(1, 5):
        world.path(number).unlink()
    assert not sleeper.follow().document.bindings
    world.clock.seconds += LIST_SECONDS + 1
    assert len(sleeper.follow().document.bindings) == 5


def test_old_versions_go(world: World) -> None:
    node = world.node()
    for number in range(KEPT_VERSIONS + 5):
        node.write(binding(f"x{number % 3}"))
    assert world.path(1).exists(), "what is young stays"
    old_s = (world.store.clock_ms() - KEPT_MS) / 1000 - 60
    for number in range(1, KEPT_VERSIONS + 6):
        os.utime(world.path(number), (old_s, old_s))
    node.write(binding("y"))
    left = sorted(int(path.name) for path in world.path(1).parent.iterdir())
    assert left == list(range(7, KEPT_VERSIONS + 7))


def test_a_change_that_is_refused_writes_nothing(world: World) -> None:
    def refuse(_: AccessDocument) -> AccessDocument:
        raise Refused("no")

    node = world.node()
    with pytest.raises(Refused, match="no"):
        node.write(refuse)
    assert not world.path(1).exists()


def test_a_store_that_is_away_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    node = world.node()
    node.write(binding("x"))
    looked = node.looked_s
    world.clock.seconds += 1

    def away(*_: Any) -> Any:
        raise Unavailable("away")

    for method in ("get", "list"):
        monkeypatch.setattr(world.store, method, away)
    with pytest.raises(Unavailable):
        node.follow()
    with pytest.raises(Unavailable):
        node.write(binding("y"))
    assert node.current.document.bindings.keys() == {"x"}
    assert node.looked_s == looked
