"""A consumer far behind, in a process of its own: reads one partition from its start to its end, again and again.

Run as `python -m benchmarks.reading.reader URL TOPIC PARTITION READ`. It says "ready" once it has records, reads until
stdin is closed, and then prints how many records it had in a second. It runs at the lowest priority: what a consumer
takes of the processors it would otherwise take of another machine.
"""

import os
import sys
import threading
import time
from typing import cast

from siltlog import Consumer, TopicPartition
from siltlog.consumers.library.sources.choice import Read

NICE = 19
POLL_MS = 10_000


def main() -> None:
    os.nice(NICE)
    url, topic, partition, read = sys.argv[1:]
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    count, started = 0, 0.0
    at = TopicPartition(topic, int(partition))
    while not ended.is_set():
        with Consumer(url, assign=[at], read=cast(Read, read)) as consumer:
            end = consumer.lag()[at].records
            while consumer.position(at.topic, at.partition) < end and not ended.is_set():
                count += consumer.poll_arrow(timeout_ms=POLL_MS).num_rows
                if not started:
                    print("ready", flush=True)
                    count, started = 0, time.perf_counter()
    print(count / (time.perf_counter() - started))


if __name__ == "__main__":
    main()
