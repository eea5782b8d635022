"""What operators may give up: of a topic that waits for a disk, and only as much as it waits for then."""

import pytest
from msgspec.structs import replace

from siltlog.infra.cluster.beat import Beat, Report, TopicReport, Wish
from siltlog.infra.cluster.controller import Seen, plan
from siltlog.infra.cluster.view import ClusterView, NodeEntry, TermEntry, TopicEntry

WISH = Wish(id="w", kind="abandon", topic="t")


def node(name: str, state: str = "up") -> NodeEntry:
    entry = NodeEntry(data_dir=name, place=name, journal=f"{name}1", url=f"http://{name}")
    return replace(entry, state=state)


LOST = TermEntry(term=1, node="a", data_dir="a", journal="a1", lost=True)
OWNER = TermEntry(term=2, node="b", data_dir="b", journal="b1")
VIEW = ClusterView(
    number=7,
    cluster_id="c",
    controller="b",
    journal="b1",
    nonce="n",
    nodes={"a": node("a", "away"), "b": node("b"), "c": node("c")},
    topics={"t": TopicEntry(topic_id="t", chain=(LOST, OWNER))},
    term=2,
)


def planned(view: ClusterView, report: TopicReport | None, *wishes: Wish) -> ClusterView:
    found = Report(topics={} if report is None else {"t": report})
    beats = {
        name: Beat(
            beat=1, node=name, data_dir=name, place=name, journal=f"{name}1", url="", view=view.number, report=said
        )
        for name, said in (("b", found), ("c", Report()))
    }
    beats["c"] = replace(beats["c"], wishes=wishes)
    return plan(view, Seen(beats), "b", "b1", "m") or view


@pytest.mark.rule("CO13")
@pytest.mark.parametrize("waits", [{"awaited": 1}, {"unexplained": 1}])
def test_what_is_given_up_is_what_is_waited_for_until_the_topic_is_claimed(waits: dict[str, int]) -> None:
    waiting = TopicReport(term=2, state="waiting", **waits)
    given_up = planned(VIEW, waiting, WISH)
    assert (given_up.topics["t"].abandon, given_up.wishes) == (1, {"w": ""})
    assert planned(given_up, waiting).topics["t"].abandon == 1, "nobody has claimed it yet"
    assert planned(given_up, TopicReport(term=2, state="claimed")).topics["t"].abandon == 0
    assert planned(given_up, TopicReport(term=1, state="claimed")).topics["t"].abandon == 1, "of another term"


@pytest.mark.rule("CO13")
def test_nothing_else_is_given_up() -> None:
    waiting = TopicReport(term=2, state="waiting", awaited=1)
    back = replace(VIEW, nodes=VIEW.nodes | {"c": replace(node("c"), data_dir="a")})
    for view, report, wish, reason in (
        (VIEW, TopicReport(term=2, state="claimed"), WISH, "there is nothing to give up"),
        (VIEW, None, WISH, "there is nothing to give up"),
        (VIEW, TopicReport(term=2, state="waiting"), WISH, "there is nothing to give up"),
        (VIEW, waiting, replace(WISH, topic="u"), "there is no topic u"),
        (back, waiting, WISH, "node c is up, and has what t waits for"),
    ):
        after = planned(view, report, wish)
        assert after.topics["t"].abandon == 0
        assert reason in after.wishes["w"]
