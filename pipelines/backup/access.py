"""The access document of a cluster in its backups, and made anew under another root.

A document is sealed for its cluster and with its secret, so it is copied as it lies, and sealed anew where it is
restored. Its keys come along only when asked for: some may have been revoked since.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, problem
from siltlog.infra.security.document import AccessDocument, seal, unseal
from siltlog.infra.security.secret import PURPOSE_ACCESS, read_secret
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.checksum import crc32c
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.once import put_once
from siltlog.infra.store.store import ObjectStore
from siltlog.pipelines import backup_names
from siltlog.pipelines.backup.format import AccessEntry


@dataclass(frozen=True, slots=True)
class AccessRestored:
    """Tells what came of the access document of a backup; of a dry run what would."""

    bindings: int = 0
    entries: int = 0
    quotas: int = 0
    keys: int = 0
    keys_left_out: int = 0
    left_out: str = ""
    """Why nothing was restored; empty where it was."""


def back_up_access(store: ObjectStore, target: ObjectStore, backup_id: str) -> AccessEntry | None:
    """Copies the newest access document; None where there is none. Its seal is looked at by who restores it."""
    versions = [info.path for info in store.list(names.ACCESS_FOLDER) if info.path.rpartition("/")[2].isdigit()]
    for version in reversed(versions):
        try:
            content = store.get(version)
        except FileNotFoundError:
            continue
        path = backup_names.access(backup_id)
        target.put(path, content)
        target.sync([path])
        return AccessEntry(int(version.rpartition("/")[2]), cluster_id(store), crc32c(content))
    return None


def restore_access(
    settings: ServerSettings,
    source: ObjectStore,
    target: ObjectStore | None,
    backup_id: str,
    entry: AccessEntry,
    clock: Clock,
    *,
    keys: bool,
    dry_run: bool,
) -> AccessRestored:
    """Writes the first access document of the target, with the grants of the backup, and its keys with `keys`.

    Nothing is restored, and the answer says why, where the target has one of its own, or where the secret of `settings`
    is not the one it was sealed with. Raises CorruptData where the backup's is damaged.
    """
    if target is not None and next(iter(target.list(names.ACCESS_FOLDER)), None) is not None:
        return AccessRestored(left_out=f"{target.root_uri} has an access document of its own")
    path = Path(settings.secret_file) if settings.secret_file else settings.data_dir / names.SECRET_FILE
    try:
        mac_key = read_secret(path).key(PURPOSE_ACCESS)
    except ConfigError as error:
        return AccessRestored(left_out=f"it needs the secret of cluster {entry.cluster_id}: {error}")
    content = _content(source, backup_id, entry)
    try:
        found = unseal(content, mac_key, entry.cluster_id, entry.number).document
    except ValueError as error:
        return AccessRestored(
            left_out=f"{path} is not the secret of cluster {entry.cluster_id}, whose grants these are ({error}); give "
            "the secret file that its servers had, and restore again"
        )
    if target is not None and not dry_run:
        restored = msgspec.structs.replace(
            found,
            cluster_id=cluster_id(target),
            number=1,
            previous_mac=b"",
            written_us=clock.now_us(),
            keys=found.keys if keys else {},
            ended={},
            ended_before_us={},
        )
        _write(target, restored, mac_key)
    return AccessRestored(
        bindings=len(found.bindings),
        entries=len(found.entries),
        quotas=len(found.quotas),
        keys=len(found.keys) if keys else 0,
        keys_left_out=0 if keys else len(found.keys),
    )


def _content(source: ObjectStore, backup_id: str, entry: AccessEntry) -> bytes:
    path = backup_names.access(backup_id)
    try:
        content = source.get(path)
    except FileNotFoundError:
        raise problem("corrupt_data", f"the backup lacks {source.uri(path)}", path=path) from None
    if crc32c(content) != entry.crc:
        raise problem("corrupt_data", f"{source.uri(path)} is damaged: it fails its checksum", path=path)
    return content


def _write(target: ObjectStore, document: AccessDocument, mac_key: bytes) -> None:
    path = names.access_object(document.number)
    if not put_once(target, path, seal(document, mac_key)):
        raise problem("access_changed", f"{target.uri(path)} was written by another meanwhile", version=document.number)
