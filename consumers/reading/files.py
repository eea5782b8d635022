"""Lists the files of a table that hold a partition's records, for consumers that read them by themselves.

A list is of one snapshot. What is in a file never changes, and a file that compaction or retention took out of it
stays there for longer than anybody uses a list; who finds one gone asks again from where they are.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial

from siltlog.consumers.reading.fetch import FetchPosition, find_partition, find_topic, nothing, require_read
from siltlog.consumers.reading.reader import check_range, last_offset_of
from siltlog.consumers.reading.row_groups import CheckedFiles
from siltlog.consumers.reading.view import LogView, PartitionView, TopicView
from siltlog.consumers.reading.waiting import Wait, Waits
from siltlog.infra.errors import SiltlogError, problem_document
from siltlog.infra.listing.file_list import FileLists, ListedFile, PartitionFiles
from siltlog.infra.security.grant import EVERYTHING, Grant


class FileLister:
    """Used on one event loop."""

    def __init__(self, log: LogView, waits: Waits, cluster_id: str) -> None:
        self._log = log
        self._waits = waits
        self._cluster_id = cluster_id
        self._checked = CheckedFiles()

    async def list(
        self, positions: Sequence[FetchPosition], *, max_files: int, wait_ms: int, grant: Grant = EVERYTHING
    ) -> FileLists:
        """The files from each position on, `max_files` in all, but at least one of each partition that has any.

        As a long poll it waits until the table holds something at or above one of the positions, or one of them has
        a problem. Problems of one partition are in its part; that `grant` does not allow to read it is one, also where
        that changed meanwhile. Raises Refused `unauthenticated` when the grant ended.
        """
        wait: Wait | None = None
        forget = nothing
        try:
            while True:
                lists = self._lists(positions, max_files, grant)
                if any(part.error or part.next_offset > part_offset for part, part_offset in _paired(lists, positions)):
                    return lists
                if wait is None and wait_ms > 0:
                    wait = self._waits.begin(grant.within(wait_ms))
                    for index, at in enumerate(positions):
                        wait.watch(index, self._find(at)[1], partial(self._has_more, at))
                    forget = grant.when_changed(wait.look)
                if wait is None or wait.over or self._log.draining:
                    return lists
                await wait.moved()
                grant.check()
        finally:
            forget()
            if wait is not None:
                wait.close()

    def _has_more(self, at: FetchPosition) -> bool:
        """Whether the table holds something from there on, or a problem is to be told."""
        try:
            start, table_offset, _ = self._find(at)[1].bounds()
        except SiltlogError:
            return True
        return not start <= at.offset or at.offset < table_offset

    def _find(self, at: FetchPosition) -> tuple[TopicView, PartitionView]:
        topic = find_topic(self._log, at.topic, at.topic_id)
        return topic, find_partition(topic, at.partition)

    def _lists(self, positions: Sequence[FetchPosition], max_files: int, grant: Grant) -> FileLists:
        parts = []
        left = max_files
        for at in positions:
            part = self._part(at, max(left, 1), grant)
            left -= len(part.files)
            parts.append(part)
        return FileLists(self._cluster_id, self._log.store.root_uri, parts)

    def _part(self, at: FetchPosition, max_files: int, grant: Grant) -> PartitionFiles:
        part = PartitionFiles(at.topic, at.partition, None, at.offset, None, None, None, None)
        try:
            require_read(grant, at.topic)
            topic, view = self._find(at)
            bounds, snapshot = view.bounds(), topic.snapshot
            bounds = bounds._replace(
                log_start_offset=max(bounds.log_start_offset, snapshot.starts.get(at.partition, 0))
            )
            part.topic_id = topic.topic_id
            part.log_start_offset, part.table_offset, part.high_watermark = bounds
            check_range(topic, view, at.offset, bounds)
            covered_end = snapshot.offsets.get(at.partition, 0)
            if at.offset >= covered_end:
                return part
            files = self._checked.of(topic.name, snapshot, at.partition)
            first = bisect_left(files, at.offset, key=last_offset_of)
            part.files = [
                ListedFile(file.path, file.rows, file.size_bytes, file.first_offset, file.last_offset, file.footer_crc)
                for file in files[first : first + max_files]
            ]
            complete = first + max_files >= len(files)
            part.next_offset = covered_end if complete else part.files[-1].last_offset + 1
        except SiltlogError as error:
            part.error = problem_document(error, None)
        return part


def _paired(lists: FileLists, positions: Sequence[FetchPosition]) -> list[tuple[PartitionFiles, int]]:
    return [(part, at.offset) for part, at in zip(lists.partitions, positions, strict=True)]
