"""Makes the fixtures of a release, which later ones must open: `.venv/bin/python tests/golden/make.py`.

Those of former releases stay as they are.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "rigs"))

from access_rig import As
from golden_rig import (
    FIXTURES,
    FOR_EVER_MS,
    KINDS,
    OBJECT_TOPIC,
    PARTITIONS,
    TOLD,
    TOPIC,
    Kind,
    consumed,
    everything,
    first_key,
    order,
    packed,
    sequenced,
    standing,
)
from wire_tape import Recording, conversation, kept

import siltlog
from siltlog.infra.names import OFFSETS_TOPIC
from siltlog.testing import running_server

NEVER_MS = 86_400_000
CONFIG = {"retention_ms": -1, "producer_expiration_ms": FOR_EVER_MS, "idempotency_expiration_ms": FOR_EVER_MS}


def make(kind: Kind) -> Path:
    """Runs servers, kills them in the midst of things, and packs what they leave."""
    with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
        folder = Path(scratch) / "made"
        folder.mkdir()
        token = first_key(folder, kind)
        with standing(folder, kind) as servers:
            told = fill(As(servers[-1].url, token))
            for server in servers:
                server.kill()
        (folder / TOLD).write_text(json.dumps({"token": token, **told}, indent=1), "utf-8")
        path = FIXTURES / f"{siltlog.__version__}-{kind}.tar.xz"
        packed(folder, path)
    return path


def fill(http: As) -> dict[str, object]:
    """Some records are in tables, some in the log alone; a group has read some; all that is told about it."""
    for name, partitions, config in ((TOPIC, PARTITIONS, CONFIG), (OBJECT_TOPIC, 1, CONFIG | {"acks": "object"})):
        http.create(name, partitions, **config)
        published = http.publish(name, *map(order, range(20)))
        assert published.status == 200, published
    assert sequenced(http, range(3)).status == 200
    while any(http.bounds(TOPIC, each)["table_offset"] < http.bounds(TOPIC, each)["high_watermark"] for each in (0, 1)):
        time.sleep(0.1)
    for name in (TOPIC, OBJECT_TOPIC):
        changed = http.json("PATCH", f"/v1/topics/{name}", {"config": {"flush.ms": NEVER_MS}})
        assert changed.status == 200, changed
    read = consumed(http, 7)
    while not any(f'"offset":{len(read)}' in record["value"] for record in http.read(OFFSETS_TOPIC, 0, "values=text")):
        time.sleep(0.1)
    for name in (TOPIC, OBJECT_TOPIC):
        assert http.publish(name, *map(order, range(20, 30))).status == 200
    keyed = http.publish(TOPIC, order(30), Idempotency_Key="once")
    last = sequenced(http, range(3, 5))
    assert (keyed.status, last.status) == (200, 200), (keyed, last)
    assert any(http.bounds(TOPIC, each)["table_offset"] < http.bounds(TOPIC, each)["high_watermark"] for each in (0, 1))
    return {
        "cluster_id": http.get("/v1/cluster").json["cluster_id"],
        "records": everything(http),
        "read": read,
        "idempotent": keyed.json,
        "sequenced": last.json,
    }


def make_tape() -> Path:
    """Keeps what clients and a server of this release say to each other."""
    recording = Recording()
    path = FIXTURES / f"{siltlog.__version__}-wire.jsonl"
    with tempfile.TemporaryDirectory(prefix="golden-") as scratch, running_server(data_dir=f"{scratch}/data") as server:
        conversation(server.url, recording)
    recording.close()
    kept(recording.tape, path)
    return path


if __name__ == "__main__":
    print(make_tape().name)
    for kind in KINDS:
        made = make(kind)
        print(f"{made.name}: {made.stat().st_size} bytes")
