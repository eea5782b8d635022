"""The write-ahead log: it writes group commits into segments, which are written once and then recycled.

It does not know what its payloads mean.
"""

from siltlog.ingest.wal.codec import Frame, FrameKind, Location
from siltlog.ingest.wal.last_entry import LastEntry
from siltlog.ingest.wal.live_segments import SegmentGone
from siltlog.ingest.wal.recovery import Recovery
from siltlog.ingest.wal.wal import Wal

__all__ = ["Frame", "FrameKind", "LastEntry", "Location", "Recovery", "SegmentGone", "Wal"]
