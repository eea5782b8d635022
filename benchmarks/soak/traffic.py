"""What keeps a server at work: publishers at a steady rate, members of a group that come and go, jobs on its tables."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from siltlog import Admin, Consumer, Producer, TopicPartition
from siltlog.infra.errors import Refused

GROUP = "soak"
KEYS = 500
TOPICS: Mapping[str, tuple[str, int]] = {"events": ("delete", 2_000), "prices": ("compact,delete", 200)}
"""Maps each topic to its cleanup policy and how many records a second it gets."""
RECORD_BYTES = 100
TURN_SECONDS = 0.05
JOBS = ("compact", "retain", "vacuum")
MEMBERS = 2
STOP_SECONDS_MAX = 60.0


class Traffic:
    """Threads that work until `ending` is set; what ends one early is in `problems`."""

    def __init__(self, url: str, job_seconds: float, visit_seconds: float) -> None:
        """`job_seconds` lie between runs of a job; every `visit_seconds` another member comes to the group, or goes."""
        self.problems: list[str] = []
        self.published = 0
        self.read = 0
        self.jobs = 0
        self._url = url
        self._job_seconds = job_seconds
        self._visit_seconds = visit_seconds
        self._lock = threading.Lock()
        self._publishing = threading.Event()
        self._ending = threading.Event()

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """It flows for as long as the block lasts. Afterwards the group has read all, or that is among the problems."""
        publisher = threading.Thread(target=self._noting, args=(self._publish,), daemon=True)
        others: list[Callable[[], None]] = [self._read] * MEMBERS + [self._visit, self._run_jobs]
        threads = [threading.Thread(target=self._noting, args=(each,), daemon=True) for each in others]
        for thread in (publisher, *threads):
            thread.start()
        try:
            yield
            self._publishing.set()
            publisher.join(STOP_SECONDS_MAX)
            self._await_group()
        finally:
            self._publishing.set()
            self._ending.set()
            for thread in (publisher, *threads):
                thread.join(STOP_SECONDS_MAX)

    def lag(self, admin: Admin) -> int:
        """Counts what the group has not committed yet."""
        committed = admin.group_offsets(GROUP)
        lag = 0
        for topic in TOPICS:
            for entry in admin.offsets(topic):
                read = committed.get(TopicPartition(topic, entry["partition"]), 0)
                lag += max(0, int(entry["high_watermark"]) - max(read, int(entry["log_start_offset"])))
        return lag

    def _noting(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.problems.append(f"{type(error).__name__}: {error}")

    def _publish(self) -> None:
        value = b"x" * RECORD_BYTES
        began, turn = time.monotonic(), 0
        with Producer(self._url) as producer:
            while not self._publishing.wait(max(0.0, began + turn * TURN_SECONDS - time.monotonic())):
                turn += 1
                for topic, (_, per_second) in TOPICS.items():
                    for number in range(int(per_second * TURN_SECONDS)):
                        producer.send(topic, value, key=f"key-{(turn * 31 + number) % KEYS}")
                        self.published += 1

    def _read(self) -> None:
        with Consumer(self._url, group=GROUP, topics=list(TOPICS), auto_commit_interval_ms=500) as consumer:
            while not self._ending.is_set():
                self._count(consumer.poll_arrow(timeout_ms=200).num_rows)

    def _visit(self) -> None:
        """A member comes, stays for a while, and goes."""
        while not self._ending.wait(self._visit_seconds):
            with Consumer(self._url, group=GROUP, topics=list(TOPICS), auto_commit_interval_ms=500) as consumer:
                until = time.monotonic() + self._visit_seconds
                while time.monotonic() < until and not self._ending.is_set():
                    self._count(consumer.poll_arrow(timeout_ms=200).num_rows)

    def _run_jobs(self) -> None:
        with Admin(self._url) as admin:
            while not self._ending.wait(self._job_seconds):
                for job in JOBS:
                    try:
                        admin.begin_job(job)
                        self.jobs += 1
                    except Refused as refused:
                        if refused.error_code != "job_running":
                            raise

    def _count(self, records: int) -> None:
        with self._lock:
            self.read += records

    def _await_group(self) -> None:
        with Admin(self._url) as admin:
            deadline = time.monotonic() + STOP_SECONDS_MAX
            while (lag := self.lag(admin)) and time.monotonic() < deadline:
                time.sleep(0.2)
        if lag:
            self.problems.append(f"{lag:,} records were not read within {STOP_SECONDS_MAX:g} s of the last publish")
