"""Reading again from a moment in time, without a group: what is replayed here changes nobody's position."""

import sys
import uuid
from datetime import UTC, datetime, timedelta

from siltlog import Admin, Consumer, Producer, TopicPartition

URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:7070"
TOPIC = f"readings-{uuid.uuid4().hex[:8]}"


def main() -> None:
    Admin(URL).create_topic(TOPIC, partitions=2)
    midnight = datetime(2026, 11, 20, tzinfo=UTC)
    with Producer(URL) as producer:
        for hour in range(24):
            producer.send(TOPIC, {"hour": hour}, timestamp=midnight + timedelta(hours=hour), partition=hour % 2)

    partitions = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
    with Consumer(URL, assign=partitions, stop_at="latest") as consumer:
        consumer.seek_to_timestamp(TOPIC, midnight + timedelta(hours=20))
        evening = sorted(record.json()["hour"] for record in consumer)
    print(f"from 20:00 on: {evening}")


if __name__ == "__main__":
    main()
