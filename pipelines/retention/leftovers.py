"""Leftovers of killed writers and finished jobs beside the topics: staged files, plans of replays, races of puts,
half-written objects.

Batches that are not published and replays that are not at their end stay, however old: somebody may come back to them.
"""

import msgspec

from siltlog.infra import names
from siltlog.infra.store.store import ObjectInfo, ObjectStore
from siltlog.pipelines.replay.plan import Progress

FINISHED_REPLAY_MS = 30 * 86_400_000
"""A replay that is begun again under the name of one that is done does nothing; so long a name is remembered."""
_PROGRESS = msgspec.json.Decoder(Progress)


def leftovers(store: ObjectStore, *, cutoff_ms: int, now_ms: int) -> list[ObjectInfo]:
    """Lists the leftovers in the order in which they are to be deleted, but for journals. Raises Unavailable."""
    staged = [info for info in _staged_for_nobody(store.list(names.STAGING_FOLDER)) if info.modified_ms < cutoff_ms]
    races = [info for info in store.list(names.PROBE_FOLDER) if info.modified_ms < cutoff_ms]
    half_written = [
        info
        for folder in (names.STAGING_FOLDER, names.CLUSTER_FOLDER)
        for info in store.unfinished(folder)
        if info.modified_ms < cutoff_ms and not info.path.startswith(f"{names.PRIVATE_FOLDER}/")
    ]
    finished = _finished_replays(store, now_ms - FINISHED_REPLAY_MS)
    return [*staged, *races, *half_written, *finished]


def _staged_for_nobody(listed: list[ObjectInfo]) -> list[ObjectInfo]:
    """Files of writers that have no batch to publish."""
    files: dict[str, list[ObjectInfo]] = {}
    waiting: set[str] = set()
    for info in listed:
        writer, _, rest = info.path.removeprefix(f"{names.STAGING_FOLDER}/").partition("/")
        if rest.startswith(f"{names.STAGED_BATCHES}/"):
            waiting.add(writer)
        elif rest.startswith(f"{names.STAGED_FILES}/"):
            files.setdefault(writer, []).append(info)
    return [info for writer, found in files.items() if writer not in waiting for info in found]


def _finished_replays(store: ObjectStore, cutoff_ms: int) -> list[ObjectInfo]:
    """Plan and progress of each; the plan first: a progress without one says that there is nothing to do."""
    by_run: dict[str, dict[str, ObjectInfo]] = {}
    for info in store.list(names.REPLAY_FOLDER):
        run, _, name = info.path.removeprefix(f"{names.REPLAY_FOLDER}/").partition("/")
        by_run.setdefault(run, {})[name] = info
    gone: list[ObjectInfo] = []
    for run, objects in by_run.items():
        plan = objects.get(names.replay_plan_object(run).rpartition("/")[2])
        progress = objects.get(names.replay_progress_object(run).rpartition("/")[2])
        if progress is not None and progress.modified_ms < cutoff_ms and _finished(store, progress.path):
            gone += [info for info in (plan, progress) if info is not None]
    return gone


def _finished(store: ObjectStore, path: str) -> bool:
    try:
        return _PROGRESS.decode(store.get(path)).finished
    except (FileNotFoundError, msgspec.DecodeError):
        return False
