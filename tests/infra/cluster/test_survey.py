from collections.abc import Collection
from typing import Any

import pytest
from failing_store import VirtualClock
from msgspec.structs import replace

from siltlog.infra.cluster.steps import Call
from siltlog.infra.cluster.survey import AGAIN_MAX, PERIOD_SECONDS, Survey
from siltlog.infra.cluster.view import ClusterView, TermEntry, TopicEntry


class Tables:
    """Finds the same each time, and remembers what was asked for."""

    def __init__(self, **found: str) -> None:
        self.found = found
        self.asked: list[tuple[list[str], list[str]]] = []

    def __call__(self, known: Collection[str], again: Collection[str]) -> Call:
        self.asked.append((sorted(known), sorted(again)))
        return lambda store: self.found


def view_of(**ids: str) -> ClusterView:
    term = TermEntry(term=1, node="a", data_dir="data", journal="a-1")
    topics = {name: TopicEntry(topic_id=topic_id, chain=(term,)) for name, topic_id in ids.items()}
    view = ClusterView(
        number=1, format=1, cluster_id="c", controller="a", journal="a-1", nonce="", journal_root="", journal_root_id=""
    )
    return replace(view, topics=topics)


def looked(survey: Survey, view: ClusterView) -> bool:
    """Takes a whole turn; whether it looked."""
    turn = survey.look(view)
    try:
        call = next(turn)
        turn.send(call(None))  # type: ignore[arg-type]
    except StopIteration as ended:
        return bool(ended.value)
    raise AssertionError("it makes one call")


def test_it_looks_each_minute_and_not_while_there_is_more_pressing_work() -> None:
    clock, tables = VirtualClock(), Tables(flights="id")
    survey = Survey(tables, clock, {})
    assert looked(survey, view_of())
    assert survey.found == {"flights": "id"}
    assert not looked(survey, view_of())
    clock.sleep(PERIOD_SECONDS + 0.1)
    survey.put_off(10.0)
    assert not looked(survey, view_of())
    clock.sleep(10.1)
    assert looked(survey, view_of())
    assert not looked(Survey(None, clock, {}), view_of())


def test_a_look_that_fails_is_tried_again_in_a_minute() -> None:
    clock, tables = VirtualClock(), Tables()
    survey = Survey(tables, clock, {})
    turn = survey.look(view_of())
    next(turn)
    with pytest.raises(ZeroDivisionError):
        turn.throw(ZeroDivisionError)
    assert not looked(survey, view_of())
    clock.sleep(PERIOD_SECONDS + 0.1)
    assert looked(survey, view_of())


def test_topics_that_are_known_are_looked_at_again_by_turns() -> None:
    clock, tables = VirtualClock(), Tables()
    survey = Survey(tables, clock, {})
    names = [f"t{number:03d}" for number in range(AGAIN_MAX + 3)]
    view = view_of(**dict.fromkeys(names, "id"))
    for _ in range(3):
        assert looked(survey, view)
        clock.sleep(PERIOD_SECONDS + 0.1)
    assert [again for _, again in tables.asked] == [names[:AGAIN_MAX], names[AGAIN_MAX:], names[:AGAIN_MAX]]
    assert all(known == names for known, _ in tables.asked)


@pytest.mark.rule("CM16")
@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        ({}, {}, {"kept": "1", "moved": "2"}),
        ({}, {"moved": "2"}, {"kept": "1"}),
        ({"moved": "2"}, {}, {"kept": "1"}),
        ({"moved": "2"}, {"moved": "3"}, {"kept": "1"}),
        ({"moved": "2"}, {"moved": "2", "else": "4"}, {"kept": "1", "moved": "2"}),
    ],
    ids=["nothing", "made", "deleted", "made anew", "another"],
)
@pytest.mark.parametrize("when", ["while it looks", "before it is used"])
def test_what_a_view_says_since_is_newer(
    before: dict[str, str], after: dict[str, str], left: dict[str, str], when: str
) -> None:
    survey = Survey(Tables(), VirtualClock(), {})
    turn: Any = survey.look(view_of(**before))
    next(turn)
    if when == "while it looks":
        survey.saw(view_of(**before), view_of(**after))
    with pytest.raises(StopIteration):
        turn.send({"kept": "1", "moved": "2"})
    if when == "before it is used":
        survey.saw(view_of(**before), view_of(**after))
    assert survey.found == left
    survey.forget()
    assert survey.found == {}
