"""What killed servers leave on their disks, in their root and in Redis: made by one release, opened by later ones."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from access_rig import As, make_first_key
from cut_door import CutDoor
from groups_rig import embedded
from http_rig import Reply

from release.archives import unpack
from siltlog import Consumer
from siltlog.server_process import ServerProcess

Kind = Literal["one", "cluster"]
KINDS: tuple[Kind, ...] = ("one", "cluster")
NODES: dict[Kind, tuple[str, ...]] = {"one": ("data",), "cluster": ("n1", "n2")}
FIXTURES = Path(__file__).parents[1] / "golden"
TOLD = "told.json"
"""What was acknowledged, beside the folders."""
SECRET = "secret"
TOPIC, OBJECT_TOPIC = "orders", "payments"
PARTITIONS = 2
GROUP = "desk"
PRODUCER = "till-1"
FOR_EVER_MS = 10**14
SETTINGS: dict[str, Any] = {
    "auth": "on",
    "flush_files_per_hour": -1,
    "offsets_retention_ms": -1,
    "offsets_snapshot_ms": 100,
    "wal_bytes_max": 8 * 1024 * 1024,
    "schedule": "on",
    "schedule_compact": "off",
    "schedule_vacuum": "off",
    "schedule_audit": "off",
    "schedule_retain": "0 0 1 1 *",
}
"""Nothing becomes too old, and one job has a time."""
CLUSTER: dict[str, Any] = {"cluster": "on", "lease_ms": 2_000, "heartbeat_ms": 500}


def of(folder: Path, kind: Kind) -> dict[str, Any]:
    """The settings of each node."""
    own = {"root": (folder / "lake").as_uri(), "secret_file": str(folder / SECRET), **SETTINGS}
    return own | CLUSTER if kind == "cluster" else own


@contextmanager
def standing(folder: Path, kind: Kind) -> Iterator[list[ServerProcess]]:
    """The servers over what is in a folder; killed in the end, if they run."""
    with ExitStack() as stack:
        settings = of(folder, kind)
        if kind == "cluster":
            valkey = embedded(folder / "redis")
            settings["redis_url"] = valkey.start()
            stack.callback(valkey.stop)
        servers = []
        for name in NODES[kind]:
            door = CutDoor()
            stack.callback(door.close)
            named = {"node_id": name, "advertise_url": door.url} if kind == "cluster" else {}
            server = ServerProcess(folder / name, {**settings, **named}, log=folder.parent / f"{name}.log")
            stack.callback(ServerProcess.stop, server)
            server.start()
            door.target = int(server.url.rpartition(":")[2])
            door.listen()
            servers.append(server)
        yield servers
        for server in servers:
            if server.running:
                server.kill()


def first_key(folder: Path, kind: Kind) -> str:
    (folder / SECRET).write_text("0123456789abcdef" * 4 + "\n", "utf-8")
    (folder / SECRET).chmod(0o600)
    return make_first_key(data_dir=folder / NODES[kind][0], **of(folder, "one"))


def sequenced(http: As, numbers: range) -> Reply:
    """The request number `numbers.start` of a producer: it may be repeated."""
    records = [{"value": f"till {number}", "partition": 0} for number in numbers]
    return http.publish(TOPIC, *records, Silt_Producer_Id=PRODUCER, Silt_Sequence=str(numbers.start))


def order(number: int) -> dict[str, Any]:
    headers = [{"key": "source", "value": "golden"}]
    return {"key": f"customer {number % 5}", "value": json.dumps({"order": number}), "headers": headers}


def everything(http: As) -> dict[str, list[list[dict[str, Any]]]]:
    """All records as they are read, by topic and partition."""
    return {
        TOPIC: [http.read(TOPIC, partition) for partition in range(PARTITIONS)],
        OBJECT_TOPIC: [http.read(OBJECT_TOPIC)],
    }


def consumed(http: As, count: int | None) -> list[tuple[int, int]]:
    """Partitions and offsets of the next records of the group, of all that are left without a `count`; committed."""
    found: list[tuple[int, int]] = []
    with Consumer(http.url, group=GROUP, topics=[TOPIC], stop_at="latest", token=http.token) as consumer:
        for record in consumer:
            found.append((record.partition, record.offset))
            if len(found) == count:
                break
        consumer.commit()
    return found


def packed(folder: Path, path: Path) -> None:
    """Sorted, without owners and times: what is made anew differs only where servers differ."""

    def bare(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not (info.isfile() or info.isdir() or info.islnk()) or info.name.endswith(
            (".spare", ".log", ".pid", "lock")
        ):
            return None
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(path, "w:xz", preset=9) as archive:
        for each in sorted(folder.iterdir()):
            archive.add(each, each.name, filter=bare)


def unpacked(path: Path, folder: Path) -> dict[str, Any]:
    """Puts a fixture there; what was told when it was made."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(path) as archive:
        unpack(archive, folder)
    (folder / SECRET).chmod(0o600)
    told: dict[str, Any] = json.loads((folder / TOLD).read_text("utf-8"))
    return told
