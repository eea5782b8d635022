# Made of async_consumer.py by `make twins`: change that one.
"""Reading from Python: records in order, by a group or from given partitions, each until it is done."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn, Self, Unpack

import pyarrow as pa

from siltlog.consumers.library.fetches import FETCH_RECORDS_MAX
from siltlog.consumers.library.handling.handler_run import HandlerRun
from siltlog.consumers.library.handling.partition_lane import Handle
from siltlog.consumers.library.inbox import Inbox
from siltlog.consumers.library.iteration import Iteration
from siltlog.consumers.library.member import warn_of_retries
from siltlog.consumers.library.options import ConsumerKeywords, ConsumerOptions, HandlingOptions, check_handler
from siltlog.consumers.library.positions import Chunk, PartitionState, Run, records_in
from siltlog.consumers.library.record import ConsumerRecord
from siltlog.consumers.library.sources.choice import Sources
from siltlog.consumers.library.threads import ConsumerThreads, Turn
from siltlog.infra.client.credentials.authorized import open_transport
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.keywords import connect_timeout_of, credentials_of, spelled_out
from siltlog.infra.client.record import TimeLike, TopicPartition
from siltlog.infra.client.transport import Caller, Transport
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.columns import FETCH_SCHEMA
from siltlog.infra.errors import ConfigError, SiltlogError, Unavailable
from siltlog.infra.records import Lag
from siltlog.infra.tracing.opening import open_processing

_log = logging.getLogger("siltlog.consumer")


class Consumer(Iteration):
    """Give `group` and `topics` (or `topic_pattern`), or `assign`. One thread at a time; `wakeup`, `close` from any.

    A record is done when the next one is asked for. With `auto_commit` what is done is committed every
    `auto_commit_interval_ms`, before a partition is let go and when the consumer is closed. While the server cannot be
    reached, calls go on trying for `retry_timeout_ms`; of several URLs the next one is tried. Iteration ends with
    `stop_at="latest"` at the ends that were seen when it began, with `idle_timeout_ms` when nothing came for so long,
    else only when woken or closed. Up to `buffer_bytes` are fetched ahead.

    With `read="auto"` what is far behind is read from the topic's Delta table by the consumer itself, where its files
    can be reached from here, and all else from the server; `"server"` never reads files; `"table"` reads nothing else:
    it sees what is in the table, and raises ConfigError where that cannot be reached. Files on S3 are found as the
    server finds them, by `SILT_S3_ENDPOINT`, `SILT_S3_REGION` and the AWS SDK's own settings.

    Who asks for nothing in `max_poll_interval_ms` leaves the group, and comes back with the next poll. With
    `instance_id` closing leaves nothing: who comes back under it within `session_timeout_ms` has its partitions again.
    Callbacks are called between two records, by the thread that reads: `on_revoked` before partitions are let go,
    `on_lost` when they are another's already.
    """

    @spelled_out(ConsumerKeywords, ConsumerOptions, topics=None, assign=None)
    def __init__(
        self,
        url: str | Sequence[str],
        *,
        clock: Clock | None = None,
        transport: Transport | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> None:
        """Raises ConfigError when an argument is not valid. Connects at the first call."""
        self._options = chosen = ConsumerOptions.of("Consumer", options)
        self._processing = open_processing(chosen.group)
        endpoints = Endpoints(url)
        self._clock = clock or SystemClock()
        self._transport = open_transport(
            endpoints, self._clock, credentials_of(options), transport, connect_timeout_of(options)
        )
        caller, background = (
            Caller(
                endpoints,
                self._transport,
                self._clock,
                retry_timeout_ms=chosen.retry_timeout_ms,
                told=warn_of_retries,
                request_timeout_ms=chosen.request_timeout_ms,
            )
            for _ in range(2)
        )
        self._sources = Sources(chosen.read, background, self._clock)
        self._inbox = Inbox(chosen, self._clock, self._sources.choose)
        self._threads = ConsumerThreads(self._inbox, self._sources.by_name, caller, background, self._clock)
        self._turn = Turn(self._inbox, self._threads)

    def poll(self, max_records: int = 500, timeout_ms: int = 1_000) -> list[ConsumerRecord]:
        """The next records, in order within each partition; empty when none came in `timeout_ms`.

        The records of the poll before are done.
        """
        with self._turn.taken():
            records = [record for run in self._take(max_records, timeout_ms) for record in records_in(run)]
        return self._inbox.handed_over(records)

    def poll_arrow(self, max_records: int = FETCH_RECORDS_MAX, timeout_ms: int = 1_000) -> pa.Table:
        """Polls as `poll` does; returns a table of topic, partition, offset, timestamp, key, value, headers."""
        with self._turn.taken():
            tables = [run.rows for run in self._take(max_records, timeout_ms)]
            table = pa.concat_tables(tables) if tables else pa.Table.from_batches([], FETCH_SCHEMA)
        return self._inbox.handed_over(table)

    def run(
        self,
        handle: Handle,
        *,
        max_attempts: int = 5,
        backoff_ms: int = 200,
        backoff_ms_max: int = 30_000,
        workers: int = 1,
    ) -> None:
        """Calls `handle(record)` for every record, in order within each partition; until woken, closed, or the end.

        A record is done when `handle` returns; what is done is committed, also without `auto_commit`. Where it raises
        an Exception the record is tried again after a pause, which doubles from `backoff_ms` to `backoff_ms_max`, while
        other partitions go on; after `max_attempts` it becomes a dead letter in `{topic}.dlq`. A record whose handling
        ended the process is counted too: after such an end records that were handed out are handled one at a time.

        With several `workers`, threads call `handle`, at most one for a partition; otherwise this thread does.
        A handler in a thread of its own may only call `wakeup` and `close` of the consumer.

        Raises what a poll does, and what `handle` raises that is no Exception; the record is then not done.
        """
        check_handler(handle, awaits=False)
        options = HandlingOptions(max_attempts, backoff_ms, backoff_ms_max, workers)
        if self._processing is not None:
            handle = self._processing.handled(handle)
        try:
            with self._turn.taken():
                HandlerRun(self._inbox, self._threads, handle, options, self._clock).run()
        finally:
            if self._turn.close_is_due:
                self.close()

    def wakeup(self) -> None:
        """A poll that waits returns what it has, an iteration ends. From any thread."""
        self._threads.wake()

    def _take(self, max_records: int, timeout_ms: int) -> list[Run]:
        if max_records < 1:
            raise ConfigError(f"max_records must be at least 1, not {max_records}")
        deadline = self._clock.monotonic() + timeout_ms / 1000
        self._inbox.ask()
        with self._polling():
            while True:
                self._threads.attend(self._inbox.attend())
                taken = self._inbox.take(max_records)
                self._threads.launch()
                if self._inbox.ended() or taken or self._clock.monotonic() >= deadline:
                    return taken
                self._threads.wait(deadline)

    def _next_chunk(self) -> Chunk | None:
        self._inbox.ask()
        idle_ms = self._options.idle_timeout_ms
        idle_at = math.inf if idle_ms is None else self._clock.monotonic() + idle_ms / 1000
        with self._polling():
            while True:
                self._threads.attend(self._inbox.attend())
                self._threads.run(self._inbox.mark_ends())
                chunk = self._inbox.next_chunk()
                self._threads.launch()
                if self._inbox.ended():
                    return None
                if chunk is not None:
                    return chunk
                if self._inbox.stopped() or self._clock.monotonic() >= idle_at:
                    return None
                self._threads.wait(idle_at)

    def commit(self, what: ConsumerRecord | Mapping[TopicPartition, int] | None = None) -> None:
        """Commits what was handed out; or up to and including a record; or the offsets to read next.

        In a `run` what was handed out is not done until `handle` returns: there it commits what is done.
        Raises Fenced when a partition has become another member's: its records are delivered there again.
        """
        with self._turn.taken():
            self._threads.run(self._inbox.commit_asked(what))

    def committed(self, topic: str, partition: int) -> int | None:
        """The group's committed offset, None when it has none."""
        with self._turn.taken():
            return self._threads.run(self._inbox.commits.committed(TopicPartition(topic, partition)))

    def assignment(self) -> list[TopicPartition]:
        """The partitions this consumer reads now."""
        return sorted(self._inbox.positions.states)

    def position(self, topic: str, partition: int) -> int:
        """The offset that is handed out next; within the handler of a `run`, behind the record that it has."""
        with self._turn.taken():
            state = self._state(topic, partition)
            return state.handed_out

    def lag(self) -> dict[TopicPartition, Lag]:
        """How far each partition's position is behind its end, in records and in seconds."""
        with self._turn.taken():
            self._settle()
            return self._threads.run(self._inbox.lag())

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """The next record of the partition is the one at `offset`, or the first after it."""
        with self._turn.taken():
            self._inbox.seek(self._state(topic, partition), offset)

    def seek_to_timestamp(self, topic: str, when: TimeLike) -> None:
        """Seeks to the first record at or after `when` in every assigned partition of the topic; to the end where
        none is."""
        with self._turn.taken():
            self._settle()
            self._threads.run(self._inbox.seek_all(topic, lambda _, offset: offset, when))

    def seek_to_beginning(self, topic: str) -> None:
        with self._turn.taken():
            self._settle()
            self._threads.run(self._inbox.seek_all(topic, lambda bounds, _: bounds.log_start_offset))

    def seek_to_end(self, topic: str) -> None:
        with self._turn.taken():
            self._settle()
            self._threads.run(self._inbox.seek_all(topic, self._inbox.end_of))

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of them until `resume`; they stay assigned."""
        with self._turn.taken():
            self._settle()
            self._inbox.pause(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        with self._turn.taken():
            self._settle()
            self._inbox.pause(partitions, False)

    def _state(self, topic: str, partition: int) -> PartitionState:
        self._settle()
        return self._inbox.state(topic, partition)

    def _settle(self) -> None:
        """Waits for the first partitions of a group."""
        self._threads.attend(self._inbox.settle())
        deadline = self._clock.monotonic() + self._options.retry_timeout_ms / 1000
        while not self._inbox.assignment.known:
            with self._polling():
                self._threads.wait(deadline)
                self._threads.attend(self._inbox.settle())
            if not self._inbox.assignment.known and (self._inbox.ended() or self._clock.monotonic() >= deadline):
                raise Unavailable("the group has assigned nothing yet", error_code="coordinator_unavailable")

    @contextmanager
    def _polling(self) -> Iterator[None]:
        self._threads.begin_polling()
        try:
            yield
        finally:
            self._threads.end_polling()

    def close(self) -> None:
        """Commits what is done, leaves the group, lets go of threads and connections. Closing again does nothing.

        From another thread it ends the poll, iteration or run that is going on, and waits for it. Within a run, as by
        its handler, it returns at once: the run ends after the records under way, and closes.
        """
        with self._turn.last() as mine:
            if mine:
                try:
                    self._threads.end(self._inbox.close())
                finally:
                    self._sources.close()
                    self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except SiltlogError as failed:
            if error is None:
                raise
            _log.warning("what was done could not be committed: %s", failed)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Consumer cannot be pickled: it has threads and connections; make one in each process")
