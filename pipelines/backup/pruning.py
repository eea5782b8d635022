"""Old backups at a place, and the files that only they have, removed."""

from collections.abc import Collection
from dataclasses import dataclass

from siltlog.infra.errors import problem
from siltlog.infra.store.store import ObjectInfo, ObjectStore
from siltlog.infra.table.entries import JOB_MS_MAX
from siltlog.pipelines import backup_names
from siltlog.pipelines.backup.format import Manifest, manifests, read_topic


@dataclass(slots=True)
class Pruned:
    backups: int = 0
    files: int = 0
    size_bytes: int = 0


def prune(place: ObjectStore, keep: int, *, now_ms: int, coming: Collection[str] | None = None) -> Pruned:
    """Leaves the newest `keep` backups, and nothing of those that were cut short.

    With `coming`, the paths of the data files of a backup that is not there yet, it only says what would go once it is.

    A manifest goes before what it names, so that what is left is whole whenever this is cut short. Raises Unavailable
    while another backup to the same place is under way, or seems to be: it may count on files that are there. Raises
    CorruptData when a backup that stays is damaged. Then nothing is removed.
    """
    assert keep > 0, "the last backup stays"
    there = manifests(place)
    others = keep if coming is None else keep - 1
    cut = max(len(there) - others, 0)
    old, kept = there[:cut], there[cut:]
    finished = {manifest.backup_id for manifest in there}
    unfinished = [backup_id for backup_id in place.folders(backup_names.BACKUPS_FOLDER) if backup_id not in finished]
    for backup_id in unfinished:
        begun = place.info(backup_names.begun(backup_id))
        if begun is not None and begun.modified_ms > now_ms - JOB_MS_MAX:
            raise problem(
                "topic_unavailable",
                f"backup {backup_id} is under way at {place.root_uri}, or was cut short of late: old backups go "
                "with a later one",
            )
    needed = _files_of(place, kept).union(coming or ())
    pruned = Pruned(backups=len(old))
    if coming is not None:
        sizes = [info.size for info in _needless(place, backup_names.FILES_FOLDER, needed)]
        return Pruned(len(old), len(sizes), sum(sizes))
    for manifest in old:
        place.delete(backup_names.manifest(manifest.backup_id))
    for backup_id in [*(manifest.backup_id for manifest in old), *unfinished]:
        _remove(place, f"{backup_names.BACKUPS_FOLDER}/{backup_id}", ())
    for info in _remove(place, backup_names.FILES_FOLDER, needed):
        pruned.files += 1
        pruned.size_bytes += info
    return pruned


def remove_cut_short(place: ObjectStore, *, now_ms: int) -> None:
    """Removes what killed processes left longer ago than any backup takes. Raises Unavailable.

    All objects of their backups go but the data files, which later backups use, and so do half-written objects.
    """
    finished = {manifest.backup_id for manifest in manifests(place)}
    for backup_id in place.folders(backup_names.BACKUPS_FOLDER):
        folder = f"{backup_names.BACKUPS_FOLDER}/{backup_id}"
        if backup_id not in finished and all(_is_old(info, now_ms) for info in _needless(place, folder, ())):
            _remove(place, folder, ())
    for info in place.unfinished(backup_names.FILES_FOLDER):
        if _is_old(info, now_ms):
            place.delete(info.path)


def _is_old(info: ObjectInfo, now_ms: int) -> bool:
    return info.modified_ms <= now_ms - JOB_MS_MAX


def _files_of(place: ObjectStore, kept: list[Manifest]) -> set[str]:
    return {
        backup_names.data_file(entry.topic_id, file.path)
        for manifest in kept
        for entry in manifest.topics
        for file in read_topic(place, manifest.backup_id, entry).files
    }


def _remove(place: ObjectStore, folder: str, needed: Collection[str]) -> list[int]:
    """All below `folder` but what is `needed`; the bytes of each."""
    gone = _needless(place, folder, needed)
    for info in gone:
        place.delete(info.path)
    for emptied in dict.fromkeys(info.path.rpartition("/")[0] for info in gone):
        place.prune(emptied)
    return [info.size for info in gone]


def _needless(place: ObjectStore, folder: str, needed: Collection[str]) -> list[ObjectInfo]:
    return [info for info in (*place.list(folder), *place.unfinished(folder)) if info.path not in needed]
