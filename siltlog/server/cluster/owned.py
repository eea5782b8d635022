"""The topics that this node owns, looked up by name: a node may have thousands, and each read asks for one."""

from collections.abc import Callable, Iterator, Mapping

from siltlog.consumers.reading.view import TopicView
from siltlog.infra.cluster.view import ClusterView
from siltlog.ingest.log.topic_logs import TopicLogs


class OwnedTopics(Mapping[str, TopicView]):
    """Leaves out what a newer view says is another's by now: that is about to be fenced here.

    It holds nothing of its own, so that it always says what is so now.
    """

    def __init__(self, logs: TopicLogs, view: Callable[[], ClusterView], journal: Callable[[], str]) -> None:
        self._logs = logs
        self._view = view
        self._journal = journal

    def __getitem__(self, name: str) -> TopicView:
        topic = self._logs.get(name)
        if topic is None or not topic.may_flush or not self._is_ours(name):
            raise KeyError(name)
        return topic

    def __iter__(self) -> Iterator[str]:
        return (topic.name for topic in self._logs.all() if topic.may_flush and self._is_ours(topic.name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _is_ours(self, name: str) -> bool:
        entry = self._view().topics.get(name)
        return entry is None or entry.entitled(self._journal()) is not None
