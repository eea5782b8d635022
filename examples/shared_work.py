"""Two workers of one group share four partitions: each record goes to one of them, those with one key in order."""

import sys
import threading
import uuid
from collections import Counter

from siltlog import Admin, Consumer, ConsumerRecord, Producer

URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:7070"
GROUP = f"workers-{uuid.uuid4().hex[:8]}"
TOPIC = f"jobs-{uuid.uuid4().hex[:8]}"
RECORDS = 1_000


def work(sharing: threading.Barrier, handled: list[ConsumerRecord]) -> None:
    # Ends when nothing came for ten seconds; without idle_timeout_ms it would go on for ever.
    with Consumer(URL, group=GROUP, topics=[TOPIC], idle_timeout_ms=10_000) as consumer:
        # Two lines that only this example needs: nothing is published before both have partitions.
        while len(consumer.assignment()) != 2:
            consumer.poll(timeout_ms=100)
        sharing.wait(120)
        handled.extend(consumer)


def main() -> None:
    Admin(URL).create_topic(TOPIC, partitions=4)
    sharing = threading.Barrier(3)
    by_worker: list[list[ConsumerRecord]] = [[], []]
    workers = [threading.Thread(target=work, args=(sharing, done)) for done in by_worker]
    for worker in workers:
        worker.start()
    sharing.wait(120)
    with Producer(URL) as producer:
        for number in range(RECORDS):
            producer.send(TOPIC, {"job": number}, key=f"customer-{number % 50}")
    for worker in workers:
        worker.join()
    every = [record for done in by_worker for record in done]
    times = Counter((record.partition, record.offset) for record in every)
    print(f"both had work: {all(by_worker)}")
    print(f"{len(times)} records handled, {sum(times.values()) - len(times)} of them twice")
    jobs: dict[bytes | None, list[int]] = {}
    for record in every:
        jobs.setdefault(record.key, []).append(record.json()["job"])
    print(f"each customer's jobs in order: {all(each == sorted(each) for each in jobs.values())}")


if __name__ == "__main__":
    main()
