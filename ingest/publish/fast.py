"""A publish of one small body: checked, appended and answered without a task that waits for it."""

from collections.abc import Mapping

from siltlog.infra import names
from siltlog.infra.limits import PARTITION_MAX
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers import headers as producer_headers
from siltlog.ingest.publish.publishing import ANYBODY, Published, Publisher, Publishing
from siltlog.ingest.records.arrow import parse_arrow
from siltlog.ingest.records.arrow_messages import inflated_within
from siltlog.ingest.records.body import fix_partition, one_record
from siltlog.ingest.records.json import parse_json

MEDIA = (names.MEDIA_JSON, names.MEDIA_BYTES, names.MEDIA_ARROW)
HEADERS = producer_headers.NAMES
"""Those it acts on, in lower case."""
INFLATED_BYTES_MAX = 256 * 1024


class SmallPublish:
    """One for the server. What it refuses, and how it answers, is what `Publish` does with the same request."""

    def __init__(self, publishing: Publishing, request_bytes_max: int) -> None:
        self.publishing = publishing
        self._bytes_max = request_bytes_max

    def suits(self, media: str, content: bytes) -> bool:
        """Whether so few bytes are really few."""
        return media != names.MEDIA_ARROW or inflated_within(content, INFLATED_BYTES_MAX)

    def append(
        self, topic: TopicLog, media: str, content: bytes, headers: Mapping[str, str], partition: str = ""
    ) -> Published:
        """`partition` is what the query says. Raises SiltlogError; then nothing was appended."""
        if media == names.MEDIA_JSON:
            body = parse_json(content)
        elif media == names.MEDIA_BYTES:
            body = one_record(content, None, None, None)
        else:
            body = parse_arrow(content, self._bytes_max)
        asked: tuple[tuple[str, str], ...] = ()
        if partition:
            fix_partition(body, int(partition))
            asked = (("partition", partition),)
        by = ANYBODY
        if headers:
            by = Publisher(
                producer_headers.publisher(headers, body, content, media, asked),
                producer_headers.header_integer(headers, names.HEADER_PARTITION_COUNT, PARTITION_MAX),
            )
        return self.publishing.append_now(topic, body, by, "wal")
