"""The format of a backup: a manifest, and for each topic a description of its table."""

import zlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from siltlog.infra.clock import parse_us
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile
from siltlog.pipelines import backup_names

FORMAT = 1
T = TypeVar("T")


class TopicBackup(msgspec.Struct, frozen=True):
    """A topic's table at one version. Members may be added."""

    topic: str
    topic_id: str
    version: int
    properties: dict[str, str]
    transactions: dict[str, int]
    files: list[DataFile]
    state: list[str]
    """Objects beside the table, relative to the topic's state folder."""
    state_crcs: dict[str, int] = {}
    """CRC-32C of each; none of backups that older versions made."""


class TopicEntry(msgspec.Struct, frozen=True):
    topic: str
    topic_id: str
    version: int
    files: int
    rows: int
    size_bytes: int
    crc: int
    """CRC-32 of the topic's document."""


class AccessEntry(msgspec.Struct, frozen=True):
    """The access document that the backup has: version `number` of that cluster."""

    number: int
    cluster_id: str
    crc: int
    """CRC-32C of its object."""


class Manifest(msgspec.Struct, frozen=True):
    """Written once everything it names is durable."""

    format: int
    backup_id: str
    taken_at: str
    """When the tables were looked at, RFC 3339."""
    root: str
    topics: list[TopicEntry]
    failed: list[str]
    """Topics that could not be read; they are not in it."""
    access: AccessEntry | None = None

    @property
    def taken_us(self) -> int:
        return parse_us(self.taken_at)

    def entry(self, topic: str) -> TopicEntry | None:
        return next((entry for entry in self.topics if entry.topic == topic), None)


def manifests(store: ObjectStore) -> list[Manifest]:
    """Reads the manifest of every finished backup, the oldest first. Raises CorruptData, Unavailable."""
    found = []
    for backup_id in store.folders(backup_names.BACKUPS_FOLDER):
        path = backup_names.manifest(backup_id)
        try:
            content = store.get(path)
        except FileNotFoundError:
            continue
        manifest = _decoded(store, path, content, Manifest)
        if manifest.format > FORMAT:
            raise problem(
                "corrupt_data",
                f"{store.uri(path)} was written by a newer version of Siltlog (format {manifest.format}, and this "
                f"one reads up to {FORMAT}): restore with that version, or a later one",
                path=path,
            )
        found.append(manifest)
    return sorted(found, key=lambda manifest: (manifest.taken_us, manifest.backup_id))


def manifest_at(store: ObjectStore, at_us: int | None) -> Manifest:
    """The newest that was taken at or before `at_us`. Raises Refused `not_found`."""
    found = manifests(store)
    if not found:
        raise problem("not_found", f"there is no finished backup at {store.root_uri}")
    fitting = [manifest for manifest in found if at_us is None or manifest.taken_us <= at_us]
    if not fitting:
        raise problem("not_found", f"the oldest backup at {store.root_uri} was taken at {found[0].taken_at}, later")
    return fitting[-1]


def encoded(document: TopicBackup) -> tuple[bytes, int]:
    """Encodes the document as JSON, and returns its CRC-32 beside it."""
    content = msgspec.json.encode(document)
    return content, zlib.crc32(content)


def read_topic(store: ObjectStore, backup_id: str, entry: TopicEntry) -> TopicBackup:
    """Raises CorruptData when it is gone or is not what the manifest says."""
    path = backup_names.table(backup_id, entry.topic)
    try:
        content = store.get(path)
    except FileNotFoundError:
        raise _corrupt(store, path, "it is missing") from None
    if zlib.crc32(content) != entry.crc:
        raise _corrupt(store, path, "it fails its checksum")
    return _decoded(store, path, content, TopicBackup)


def totals(files: Sequence[DataFile]) -> tuple[int, int, int]:
    """Files, rows, bytes."""
    return len(files), sum(file.rows for file in files), sum(file.size_bytes for file in files)


def _decoded(store: ObjectStore, path: str, content: bytes, form: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _corrupt(store, path, str(error)) from error


def _corrupt(store: ObjectStore, path: str, reason: str) -> SiltlogError:
    return problem("corrupt_data", f"the backup is damaged at {store.uri(path)} ({reason})", path=path)
