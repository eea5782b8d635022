"""A record that nobody can handle is tried three times, put aside in `{topic}.dlq`, and the rest goes on."""

import sys
import uuid

from siltlog import Admin, Consumer, ConsumerRecord, Producer, TopicPartition

URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:7070"
GROUP = f"billing-{uuid.uuid4().hex[:8]}"
TOPIC = f"orders-{uuid.uuid4().hex[:8]}"


def main() -> None:
    Admin(URL).create_topic(TOPIC)
    with Producer(URL) as producer:
        for price in ("3.10", "4.20", "free", "5.00"):
            producer.send(TOPIC, price)

    total = 0.0
    attempts = 0

    with Consumer(URL, group=GROUP, topics=[TOPIC], idle_timeout_ms=10_000) as consumer:

        def handle(record: ConsumerRecord) -> None:
            nonlocal total, attempts
            attempts += record.value == b"free"
            total += float(record.text() or 0)

        consumer.run(handle, max_attempts=3, backoff_ms=100)
    print(f"handled {total:.2f}, tried the bad one {attempts} times")

    with Consumer(URL, assign=[TopicPartition(f"{TOPIC}.dlq", 0)], stop_at="latest") as letters:
        for letter in letters:
            headers = dict(letter.headers)
            print(f"dead letter {letter.text()!r} of offset {(headers['silt.offset'] or b'').decode()}")


if __name__ == "__main__":
    main()
