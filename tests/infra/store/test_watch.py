"""What is told of an object store that does not answer."""

import threading
from typing import Any, cast

from siltlog.infra.errors import problem
from siltlog.infra.store.watch import LATE_SECONDS, StoreWatch


class Store:
    root_uri = "s3://lake/base"

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.may_answer.set()

    def size(self, path: str) -> int | None:
        self.asked.set()
        self.may_answer.wait()
        answer = self.answers.pop(0) if self.answers else 36
        if isinstance(answer, Exception):
            raise answer
        return cast(int | None, answer)


class Clock:
    seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds


def watched() -> tuple[Store, Clock, StoreWatch]:
    store, clock = Store(), Clock()
    return store, clock, StoreWatch(cast(Any, store), cast(Any, clock))


def test_one_that_does_not_answer_is_told_of_until_it_does() -> None:
    store, clock, watch = watched()
    store.may_answer.clear()
    asking = threading.Thread(target=watch.ask)
    asking.start()
    store.asked.wait()
    assert watch.warnings() == []
    clock.seconds += LATE_SECONDS + 2
    assert watch.warnings() == ["the object store at s3://lake/base has not answered for 7 s"]
    store.may_answer.set()
    asking.join()
    assert watch.warnings() == []
    watch.stop()


def test_one_that_answers_with_an_error() -> None:
    store, _, watch = watched()
    store.answers = [problem("topic_unavailable", "S3 cannot be reached"), None, 36]
    watch.ask()
    assert watch.warnings() == ["the object store at s3://lake/base fails: S3 cannot be reached"]
    watch.ask()
    assert watch.warnings() == ["the object store at s3://lake/base fails: cluster/id is gone"]
    watch.ask()
    assert watch.warnings() == []
    watch.stop()
