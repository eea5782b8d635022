"""Topics are found by their ids, and those that there are not cost no look at all others each time."""

import uuid
from collections.abc import Sequence
from typing import Any, cast

import pytest

from siltlog.infra.errors import problem
from siltlog.server.kafka.topic_ids import TopicIds, id_bytes


class Topic:
    def __init__(self, name: str) -> None:
        self.name = name
        self.looks = 0
        self._id = str(uuid.uuid4())

    @property
    def topic_id(self) -> str:
        self.looks += 1
        return self._id


class Log:
    def __init__(self, *topics: Topic) -> None:
        self.all: Sequence[Topic] = topics

    def topics(self) -> Sequence[Topic]:
        return self.all

    def topic(self, name: str) -> Topic:
        for topic in self.all:
            if topic.name == name:
                return topic
        raise problem("unknown_topic", f"there is no topic {name}")


def test_who_asks_for_what_is_gone_again_and_again_has_all_topics_looked_at_once() -> None:
    here, gone = Topic("here"), Topic("gone")
    log = Log(here, gone)
    ids = TopicIds(cast(Any, log))
    here_id, gone_id = id_bytes(here.topic_id), id_bytes(gone.topic_id)
    assert ids.names([gone_id]) == {gone_id: "gone"}
    log.all = (here,)
    assert ids.names([gone_id]) == {}
    before = here.looks
    for _ in range(10):
        assert ids.names([gone_id]) == {}
    assert here.looks == before
    assert ids.names([here_id, gone_id]) == {here_id: "here"}


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_topic_that_comes_is_found_whatever_was_asked_for_before(kind: type) -> None:
    first, second = Topic("a"), Topic("b")
    log = Log(first)
    log.all = kind([first])
    ids = TopicIds(cast(Any, log))
    second_id = id_bytes(second.topic_id)
    assert ids.names([second_id]) == {}
    if kind is list:
        cast(Any, log.all).append(second)
    else:
        log.all = (first, second)
    assert ids.names([second_id]) == {second_id: "b"}
    again = Topic("a")
    log.all = kind([again, second])
    assert ids.names([id_bytes(again.topic_id), id_bytes(first.topic_id)]) == {id_bytes(again.topic_id): "a"}
