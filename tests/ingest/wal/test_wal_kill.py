"""SIGKILL under concurrent submits, on the real disk, the log going on each time."""

import os
import random
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

from siltlog.infra.clock import SystemClock
from siltlog.ingest.wal import FrameKind, Wal

TOPIC = b"kill-test-topic."
PARTITIONS = 4
SEGMENT_BYTES = 256 * 1024


def payload(partition: int, offset: int) -> bytes:
    rng = random.Random(partition << 32 | offset)
    return rng.randbytes(rng.choice((1, 60, 500, 4000)))


def open_wal(folder: Path) -> Wal:
    return Wal(
        folder,
        segment_bytes=SEGMENT_BYTES,
        bytes_max=1 << 30,
        cluster_id="cluster",
        on_fatal=lambda error: os.abort(),
        state=lambda _: b"",
        clock=SystemClock(),
        marker_idle_ms=2,
    )


def publish(folder: Path) -> None:
    """The child publishes to each partition from a thread until it is killed, and says what is durable, a line each."""
    from siltlog.ingest.wal import Frame

    wal = open_wal(folder)
    next_offsets = [0] * PARTITIONS
    for frame, _ in wal.recover().frames:
        next_offsets[frame.partition] = frame.first_offset + frame.count
    wal.start()
    acked = list(next_offsets)

    def run(partition: int) -> None:
        window = threading.Semaphore(8)

        def done(offset: int) -> None:
            os.write(1, b"%d %d\n" % (partition, offset))
            acked[partition] = offset + 1
            window.release()

        offset = next_offsets[partition]
        while True:
            window.acquire()
            frame = Frame(FrameKind.RECORDS, TOPIC, partition, 1, offset, 1, payload(partition, offset))
            if partition % 2:
                # Told once it is written, which a kill takes away as little as what is synced.
                wal.submit([frame], lambda locations: None, partial(done, offset))
            else:
                wal.submit([frame], lambda locations, offset=offset: done(offset))
            offset += 1
            if partition == 0 and offset % 100 == 0:
                wal.trim(lambda topic_id, partition: acked[partition] - 200)

    threads = [threading.Thread(target=run, args=(partition,)) for partition in range(PARTITIONS)]
    for thread in threads:
        thread.start()


def test_acknowledged_frames_survive_sigkill(tmp_path: Path) -> None:
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    rng = random.Random(seed)
    acked = [0] * PARTITIONS
    for life in range(6):
        child = subprocess.Popen([sys.executable, __file__, str(tmp_path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        try:
            for _ in range(rng.randint(1, 4000)):
                line = child.stdout.readline()
                assert line, "the child ended by itself"
                _count(acked, line)
        finally:
            child.send_signal(signal.SIGKILL)
            rest, _ = child.communicate()
        for line in rest.splitlines(keepends=True):
            if line.endswith(b"\n"):
                _count(acked, line)
        assert child.returncode == -signal.SIGKILL
        found: list[list[int]] = [[] for _ in range(PARTITIONS)]
        for frame, _ in open_wal(tmp_path).recover().frames:
            assert frame.topic_id == TOPIC
            assert bytes(frame.payload) == payload(frame.partition, frame.first_offset)
            found[frame.partition].append(frame.first_offset)
        for partition, offsets in enumerate(found):
            end = offsets[-1] + 1 if offsets else 0
            start = offsets[0] if offsets else 0
            assert offsets == list(range(start, end))
            assert start <= max(acked[partition] - 200, 0) and end >= acked[partition], (life, partition)
            assert end <= acked[partition] + 8
            # What is found at a start counts as durable from there on.
            acked[partition] = end


def _count(acked: list[int], line: bytes) -> None:
    partition, offset = map(int, line.split())
    assert offset == acked[partition]
    acked[partition] = offset + 1


if __name__ == "__main__":
    publish(Path(sys.argv[1]))
