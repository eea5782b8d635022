"""A worker is killed in the middle of its work: another one gets its partitions, and nothing is skipped.

What the dead one had handled and not committed is handled again: at least once, unless the result and the position are
stored together (docs/consuming.md shows how).
"""

import subprocess
import sys
import uuid
from collections import Counter

from siltlog import Admin, Consumer, Producer

URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:7070"
RECORDS = 500
SESSION_TIMEOUT_MS = 2_000  # 45 s unless said; how long nobody else gets what a silent worker held


def work(topic: str, group: str) -> None:
    """Prints each record as `partition offset`, until nothing came for fifteen seconds."""
    with Consumer(
        URL,
        group=group,
        topics=[topic],
        session_timeout_ms=SESSION_TIMEOUT_MS,
        auto_commit_interval_ms=200,
        idle_timeout_ms=15_000,
    ) as consumer:
        for record in consumer:
            print(record.partition, record.offset, flush=True)


def start(topic: str, group: str) -> "subprocess.Popen[str]":
    command = [sys.executable, __file__, URL, topic, group]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def main() -> None:
    topic, group = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("jobs", "workers"))
    Admin(URL).create_topic(topic, partitions=4)
    with Producer(URL) as producer:
        for number in range(RECORDS):
            producer.send(topic, {"job": number}, partition=number % 4)

    first = start(topic, group)
    assert first.stdout is not None
    handled = [first.stdout.readline().strip() for _ in range(RECORDS // 2)]
    first.kill()
    rest, _ = first.communicate()
    handled += rest.split("\n")[:-1]
    print(f"the first worker was killed after it handled a half: {len(handled) >= RECORDS // 2}")

    second = start(topic, group)
    more, _ = second.communicate()
    handled += more.split("\n")[:-1]
    times = Counter(handled)
    print(f"{len(times)} of {RECORDS} records handled")
    print(f"{sum(times.values()) - len(times)} of them twice", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        work(*sys.argv[2:])
    else:
        main()
