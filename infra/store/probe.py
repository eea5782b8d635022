"""Whether a root may be shared: its puts where nothing is must have one winner, and its disk must be a local one.

A race that has one winner proves little, so the servers that are tested are named in the documents; one that has two
proves that records would be lost.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from siltlog.infra import names
from siltlog.infra.errors import ConfigError, problem
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.store import ObjectStore, Put

RACERS = 8
ROUNDS = 4
MOUNTS = Path("/proc/self/mountinfo")
_OF_OTHER_MACHINES = ("nfs", "cifs", "smb", "fuse")
"""How the names of file systems begin whose links and syncs are another machine's or program's word."""


class Answer(NamedTuple):
    """What one of the racers was told of its put, and what it put."""

    put: Put
    content: bytes


def check_shared_root(store: ObjectStore, race_id: str, racers: int = RACERS) -> None:
    """Raises ConfigError, saying why, where nodes must not share the root; Unavailable while it cannot be told.

    `race_id` is of this start of this node alone.
    """
    if isinstance(store, LocalStore):
        check_file_system(store.path(""), MOUNTS)
    for number in range(ROUNDS):
        path = names.probe_object(f"{race_id}-{number}")
        try:
            check_race(store, path, race([store] * racers, path))
        finally:
            store.delete(path)


def race(stores: Sequence[ObjectStore], path: str) -> list[Answer]:
    """Puts at once, as many as there are stores, and once more when all are answered."""
    start = threading.Barrier(len(stores))

    def put(number: int) -> Answer:
        content = f"racer {number}".encode()
        start.wait()
        return Answer(stores[number].put_if_absent(path, content), content)

    with ThreadPoolExecutor(len(stores)) as pool:
        answers = list(pool.map(put, range(len(stores))))
    late = b"late"
    return [*answers, Answer(stores[0].put_if_absent(path, late), late)]


def check_race(store: ObjectStore, path: str, answers: Sequence[Answer]) -> None:
    """Raises ConfigError when the store let two win, or none, or another than it told; Unavailable where it told nobody
    anything."""
    winners = [answer.content for answer in answers if answer.put is Put.WRITTEN]
    unknown = [answer.content for answer in answers if answer.put is Put.UNKNOWN]
    try:
        found = store.get(path)
    except FileNotFoundError:
        found = None
    if found is None and len(unknown) == len(answers):
        raise problem("topic_unavailable", f"{store.uri(path)} cannot be put: the store does not answer")
    if len(winners) > 1:
        said = f"told {len(winners)} of {len(answers)} racers that each had written the one object {path}"
    elif found not in winners and found not in unknown:
        said = f"has {found!r} at {path}, which none of {len(answers)} racers was told to have written"
    elif winners and found != winners[0]:
        said = f"let the object {path} be written over after one of {len(answers)} racers had been told that it won"
    else:
        return
    raise ConfigError(
        f"{store.root_uri} {said}: nodes that share it would lose records. Use a store whose conditional writes "
        "(If-None-Match: *) are atomic; docs/design/cluster.md names the versions that are tested"
    )


def check_file_system(folder: Path, mounts: Path) -> None:
    """Raises ConfigError where the folder lies on a file system that is another machine's, or a program's.

    `mounts` is as of proc(5), `mountinfo`; without one nothing is known, and nothing refused.
    """
    try:
        lines = mounts.read_text("utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    mounted = file_system(str(folder.resolve()), lines)
    if mounted is not None and mounted[1].startswith(_OF_OTHER_MACHINES):
        raise ConfigError(
            f"the root {folder} lies on {mounted[0]}, which is {mounted[1]}: nodes cannot share a root there, as its "
            "links and syncs are not atomic between machines. Use a disk of this machine, or a bucket (s3://)"
        )


def file_system(folder: str, mounts: Sequence[str]) -> tuple[str, str] | None:
    """Where the file system is mounted that has `folder`, and its type; of those at one place the last covers."""
    found: tuple[str, str] | None = None
    for line in mounts:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        place = _plain(fields[4])
        inside = folder == place or folder.startswith(place.rstrip("/") + "/")
        if inside and (found is None or len(place) >= len(found[0])):
            found = place, after.split(" ")[0]
    return found


def _plain(place: str) -> str:
    """Spaces, tabs, line ends and backslashes are written in octal."""
    for character in " \t\n\\":
        place = place.replace(f"\\{ord(character):03o}", character)
    return place
