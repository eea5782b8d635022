"""The topics that a node owns, by name."""

from types import SimpleNamespace
from typing import Any

import pytest

from siltlog.infra.cluster.view import ClusterView, TermEntry, TopicEntry
from siltlog.server.cluster.owned import OwnedTopics


class _Logs:
    def __init__(self, **may_flush: bool) -> None:
        self.named = {name: SimpleNamespace(name=name, may_flush=may) for name, may in may_flush.items()}
        self.lists = 0

    def get(self, name: str) -> Any:
        return self.named.get(name)

    def all(self) -> list[Any]:
        self.lists += 1
        return sorted(self.named.values(), key=lambda topic: topic.name)


def _entry(journal: str) -> TopicEntry:
    return TopicEntry(topic_id="t", chain=(TermEntry(term=1, node="n", data_dir="d", journal=journal),))


def test_what_is_released_or_anothers_by_the_view_is_not_owned() -> None:
    logs: Any = _Logs(gone=False, made=True, ours=True, theirs=True)
    topics = {"gone": _entry("this"), "ours": _entry("this"), "theirs": _entry("other")}
    view = ClusterView(number=1, cluster_id="c", controller="n", journal="this", nonce="x", topics=topics)
    owned = OwnedTopics(logs, lambda: view, lambda: "this")
    assert list(owned) == ["made", "ours"]
    assert len(owned) == 2
    assert owned.get("ours") is logs.named["ours"]
    for name in ("gone", "theirs", "none"):
        assert owned.get(name) is None
        with pytest.raises(KeyError):
            owned[name]


def test_a_look_up_lists_nothing() -> None:
    logs: Any = _Logs(ours=True)
    view = ClusterView(number=1, cluster_id="c", controller="n", journal="this", nonce="x")
    owned = OwnedTopics(logs, lambda: view, lambda: "this")
    assert "ours" in owned
    assert owned.get("ours") is not None
    assert logs.lists == 0
