"""What this node's WAL has of topics that are not held now, from a former start or from before they were let go.

It is kept, segments included, until the topic is taken again, or there is nothing left to be done for it.
"""

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.log.topic_logs import TopicLogs
from siltlog.ingest.ownership.found import Found, FoundFrame, FrameKey, each_once
from siltlog.ingest.wal import Location, Wal


class Former:
    """Used on the log's event loop; lookups, by any thread while nothing is taken or let go."""

    def __init__(self, topic_logs: TopicLogs, wal: Wal, found: Found) -> None:
        """Before the WAL starts: from there on its state has what was found."""
        self._topic_logs = topic_logs
        self._wal = wal
        self._frames: dict[FrameKey, list[FoundFrame]] = dict(found.frames)
        for topic_id, state in found.state.topics.items():
            topic_logs.keep(topic_id, state)

    def topic_ids(self) -> list[str]:
        return self._topic_logs.former_ids()

    def states(self) -> list[wal_state.TopicState]:
        return [state for topic_id in self.topic_ids() if (state := self.state(topic_id)) is not None]

    def state(self, topic_id: str) -> wal_state.TopicState | None:
        return self._topic_logs.former(topic_id)

    def frames_of(self, topic_id: str, partition: int) -> list[FoundFrame]:
        """The partition's frames in the order of their offsets, each of which comes once."""
        return list(each_once(self._frames.get((topic_id, partition), ())))

    def started(self) -> None:
        """The WAL has started: files that were found may be written anew, so frames are read from where they are."""
        for key, frames in self._frames.items():
            self._frames[key] = [
                FoundFrame(one.first_offset, one.next_offset, one.epoch, one.location, self._reader(one.location))
                for one in frames
            ]

    def settled(self, topic_id: str) -> None:
        """Nothing that the WAL has of the topic is needed here any more: it is held, or is no concern of this node."""
        self._topic_logs.settled(topic_id)
        for key in [key for key in self._frames if key[0] == topic_id]:
            del self._frames[key]

    def let_go(self, topic: TopicLog) -> None:
        """The topic is not held any more. Unless it was released, what it has beyond its table is kept, for a take of
        it to go on with or to set aside."""
        released = topic.state == "released"
        for log in topic.partitions if not released else ():
            frames = [
                FoundFrame(first, end, log.epoch, location, self._reader(location))
                for chunk in log.head.between(log.offsets.table, log.offsets.synced)
                for first, end, location in chunk.places()
            ]
            if frames:
                self._frames[topic.topic_id, log.partition] = frames
        self._topic_logs.let_go(topic, released=released)

    def not_taken(self, topic: TopicLog) -> None:
        """It could not be taken: the WAL knows of it what it did, and which epochs were tried."""
        self._topic_logs.let_go(topic, released=False)

    def _reader(self, location: Location) -> Callable[[], pa.Buffer]:
        return partial(self._wal.read, location)
