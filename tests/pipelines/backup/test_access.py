"""Grants come back with a backup, sealed for their new cluster; keys only when asked for."""

from pathlib import Path

import msgspec
import pytest
from topic_writer import TopicWriter

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import CorruptData
from siltlog.infra.security.access import Binding, Entry
from siltlog.infra.security.document import AccessDocument, KeptKey
from siltlog.infra.security.documents import AccessDocuments
from siltlog.infra.security.secret import PURPOSE_ACCESS, make_secret, read_secret
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.store import open_store
from siltlog.infra.telemetry import logger
from siltlog.pipelines.backup.backup import backup_topics
from siltlog.pipelines.backup.restore import RestoreReport, find_backup, restore_topics

GRANTS = AccessDocument(
    "",
    keys={"k": KeptKey("ops", b"hash", 1)},
    bindings={"b": Binding("key:ops", "admin")},
    entries={"e": Entry("key:shop", "topic", "orders", ("write",))},
)


class World:
    """A root with one topic and a place for backups; each root has a data directory of its own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        TopicWriter(open_store(self.uri("lake")), "orders", 1)

    def uri(self, name: str) -> str:
        return (self.base / name).as_uri()

    def settings(self, name: str) -> ServerSettings:
        return ServerSettings(data_dir=self.base / f"{name}-data", root=self.uri(name))

    def documents(self, name: str) -> AccessDocuments:
        """Opens what a server over that root would, with the secret in its data directory."""
        data_dir = self.settings(name).data_dir
        data_dir.mkdir(exist_ok=True)
        make_secret(data_dir / names.SECRET_FILE)
        store = open_store(self.uri(name))
        mac_key = read_secret(data_dir / names.SECRET_FILE).key(PURPOSE_ACCESS)
        seen_file = data_dir / names.ACCESS_SEEN_FILE
        found = AccessDocuments(store, cluster_id(store), mac_key, seen_file, SystemClock(), logger("error", "console"))
        found.open()
        return found

    def give_secret(self, to: str) -> None:
        (self.base / f"{to}-data").mkdir()
        secret = self.base / f"{to}-data" / names.SECRET_FILE
        secret.write_bytes((self.base / "lake-data" / names.SECRET_FILE).read_bytes())
        secret.chmod(0o600)

    def backup(self) -> None:
        backup_topics(self.settings("lake"), self.uri("backups"))

    def restore(self, name: str, *topics: str, keys: bool = False, dry_run: bool = False) -> RestoreReport:
        manifest = find_backup(self.settings(name), self.uri("backups"))
        return restore_topics(self.settings(name), self.uri("backups"), manifest, topics, keys=keys, dry_run=dry_run)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def granted(document: AccessDocument) -> AccessDocument:
    return msgspec.structs.replace(GRANTS, cluster_id=document.cluster_id)


@pytest.mark.rule("N11")
@pytest.mark.parametrize("keys", [False, True])
def test_grants_come_back_and_keys_when_asked_for(world: World, keys: bool) -> None:
    world.documents("lake").write(granted)
    world.backup()
    world.give_secret("new")
    told = world.restore("new", keys=keys).access
    assert told is not None and not told.left_out
    assert (told.bindings, told.entries, told.keys, told.keys_left_out) == (1, 1, int(keys), int(not keys))
    found = world.documents("new").current.document
    assert (found.bindings, found.entries) == (GRANTS.bindings, GRANTS.entries)
    assert found.keys == (GRANTS.keys if keys else {})
    assert found.number == 1 and found.cluster_id != world.documents("lake").current.document.cluster_id


@pytest.mark.rule("N11")
def test_another_secret_brings_none_and_says_whose_it_must_be(world: World) -> None:
    documents = world.documents("lake")
    documents.write(granted)
    world.backup()
    told = world.restore("new").access
    assert told is not None and "it needs the secret of cluster" in told.left_out
    assert documents.current.document.cluster_id in told.left_out
    again = world.documents("new")
    assert not again.current.document.number, "nothing was written"
    told = world.restore("new").access
    assert told is not None and "is not the secret of cluster" in told.left_out


def test_what_the_root_has_is_left_alone(world: World) -> None:
    world.documents("lake").write(granted)
    world.backup()
    world.give_secret("new")
    own = world.documents("new").write(granted)
    told = world.restore("new", keys=True).access
    assert told is not None and "has an access document of its own" in told.left_out
    assert world.documents("new").current == own


def test_a_dry_run_and_a_part_of_it_write_none(world: World) -> None:
    world.documents("lake").write(granted)
    world.backup()
    world.give_secret("new")
    told = world.restore("new", dry_run=True).access
    assert told is not None and told.entries == 1
    assert world.restore("new", "orders").access is None
    assert not world.documents("new").current.document.number


def test_a_backup_without_grants_brings_none(world: World) -> None:
    world.backup()
    assert world.restore("new").access is None


def test_a_damaged_copy_is_named(world: World) -> None:
    world.documents("lake").write(granted)
    world.backup()
    world.give_secret("new")
    (copy,) = (world.base / "backups").rglob("access.json")
    copy.write_bytes(copy.read_bytes().replace(b"shop", b"chef"))
    with pytest.raises(CorruptData, match="fails its checksum"):
        world.restore("new")
