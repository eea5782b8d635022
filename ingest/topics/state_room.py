"""How many topics and partitions the write-ahead log keeps account of: that is in each of its segments. Pure."""

from collections.abc import Callable

from siltlog.infra import names
from siltlog.infra.errors import problem
from siltlog.infra.settings.fit import SEGMENTS_MIN
from siltlog.ingest.topics.room import AllThere, There

MIB = 1024 * 1024
PARTITION_STATE_BYTES = 24
"""What a partition takes of the state beside its producers: its number and two offsets, however high they are."""
TOPIC_STATE_BYTES = 384
"""What a topic takes beside its name and partitions: its id, versions, and most of the epochs that are remembered."""


class StateRoom:
    """Refuses what would leave too little of a segment for records. What the server makes itself is counted and never
    refused: each topic of a user's brings about at most as much of it."""

    def __init__(self, seen: Callable[[], AllThere], bytes_max: int, segment_bytes: int) -> None:
        """`seen()` has all topics there are, those of other nodes too: one node may come to own them all. They may take
        `bytes_max` of segments of `segment_bytes`."""
        self._seen = seen
        self._bytes_max = bytes_max
        self._segment_bytes = segment_bytes

    def check_new(self, name: str, partitions: int) -> None:
        """Raises Refused `cap_reached` where there is no room for one more topic."""
        self._check(name, topic_bytes(name, partitions))

    def check_more(self, name: str, partitions: int) -> None:
        """Raises Refused `cap_reached` where there is no room for so many more partitions of a topic."""
        self._check(name, PARTITION_STATE_BYTES * partitions)

    def _check(self, name: str, more: int) -> None:
        if names.is_system_topic(name):
            return
        taken = sum(map(_bytes_of, self._seen().topics()))
        if taken + more > self._bytes_max:
            # Larger ones have room for more than in proportion.
            wanted = MIB * -(-(taken + more) * self._segment_bytes // (self._bytes_max * MIB))
            raise problem(
                "cap_reached",
                f"topic {name}: the write-ahead log keeps account of topics and partitions in each of its segments, of "
                f"{self._segment_bytes} bytes, which have room for {self._bytes_max} of that: {taken} are taken, and "
                f"this takes {more}. Ask for fewer partitions, delete topics, or start the server with "
                f"SILT_WAL_SEGMENT_BYTES={wanted} or more and SILT_WAL_BYTES_MAX={SEGMENTS_MIN * wanted} or more",
                limit="topics_state_bytes",
                value=self._bytes_max,
            )


def topic_bytes(name: str, partitions: int) -> int:
    """What a topic takes of the state."""
    return TOPIC_STATE_BYTES + len(name) + PARTITION_STATE_BYTES * partitions


def _bytes_of(topic: There) -> int:
    return topic_bytes(topic.name, len(topic.partitions))
