"""The server is killed and started again while a producer and a consumer use it: both go on by themselves.

It starts a server of its own, because it kills it.
"""

import threading
from collections import Counter

from siltlog import Admin, Consumer, Producer
from siltlog.testing import running_server

RECORDS = 300


def publish(url: str) -> None:
    """Sends numbers, one after the other; what has no acknowledgement when the server dies is sent again."""
    with Producer(url) as producer:
        for number in range(RECORDS):
            producer.send("jobs", {"job": number}, key=f"customer-{number % 20}").result(60)


def main() -> None:
    with running_server() as server:
        Admin(server.url).create_topic("jobs", partitions=4)
        publisher = threading.Thread(target=publish, args=(server.url,))
        publisher.start()
        handled: list[int] = []
        with Consumer(server.url, group="workers", topics=["jobs"], idle_timeout_ms=30_000) as consumer:
            for record in consumer:
                handled.append(record.json()["job"])
                if len(handled) == RECORDS // 3:
                    server.kill()  # as a power cut would: nothing is flushed, nothing is said
                    server.restart()
                if len(handled) == RECORDS:
                    break
        publisher.join()
        stored = sum(bounds["high_watermark"] for bounds in Admin(server.url).offsets("jobs"))
        times = Counter(handled)
        print(f"{len(times)} of {RECORDS} records handled, {sum(times.values()) - len(times)} of them twice")
        print(f"{stored} in the log")


if __name__ == "__main__":
    main()
