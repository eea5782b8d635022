"""Records expire: the job that removes them moves the log start, and readers begin behind it."""

import sys
import threading
import uuid
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from siltlog import Admin, Consumer, Producer, TopicPartition

URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:7070"
TOPIC = f"clicks-{uuid.uuid4().hex[:8]}"


def bounds(admin: Admin) -> tuple[int, int]:
    """The log start offset of the partition, and its high watermark."""
    [partition] = admin.offsets(TOPIC)
    return partition["log_start_offset"], partition["high_watermark"]


def main() -> None:
    admin = Admin(URL)
    admin.create_topic(TOPIC, config={"retention.ms": 3_600_000})
    now = datetime.now(UTC)
    # Whole files expire: a batch that is acknowledged at `table` before the next is sent has one of its own.
    with Producer(URL, acks="table") as producer:
        for age, count in ((timedelta(hours=2), 50), (timedelta(0), 10)):
            clicks = [{"value": f'{{"click": {number}}}', "timestamp": now - age} for number in range(count)]
            producer.send_batch(TOPIC, pa.Table.from_pylist(clicks)).result()
    print("before: offsets {} to {}".format(*bounds(admin)))

    admin.begin_job("retain")  # the schedule does it every ten minutes
    while bounds(admin)[0] == 0:
        threading.Event().wait(0.1)
    print("after: offsets {} to {}".format(*bounds(admin)))

    with Consumer(URL, assign=[TopicPartition(TOPIC, 0)], stop_at="latest") as consumer:
        offsets = [record.offset for record in consumer]
    print(f"a reader that begins at the beginning begins at {offsets[0]} and gets {len(offsets)}")


if __name__ == "__main__":
    main()
