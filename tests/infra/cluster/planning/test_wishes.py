"""What operators may give up: of a topic that waits for a disk, and only as much as it waits for then."""

import pytest
from msgspec.structs import replace

from siltlog.infra.cluster.beat import Beat, Report, TopicReport, Wish
from siltlog.infra.cluster.planning.controller import Seen, plan
from siltlog.infra.cluster.planning.draft import awaited_topics
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
    return plan(view, Seen(said(view, found, *wishes)), "b", "b1", "m") or view


def said(view: ClusterView, report: Report, *wishes: Wish) -> dict[str, Beat]:
    def beat(name: str, report: Report, wishes: tuple[Wish, ...] = ()) -> Beat:
        return Beat(
            beat=1,
            node=name,
            data_dir=name,
            place=name,
            journal=f"{name}1",
            url="",
            view=view.number,
            report=report,
            wishes=wishes,
        )

    return {"b": beat("b", report), "c": beat("c", Report(), wishes)}


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


def test_who_is_waited_for_is_the_data_directory_with_the_records() -> None:
    waiting = Report(topics={"t": TopicReport(term=2, state="waiting", awaited=1)})
    assert awaited_topics(VIEW, said(VIEW, waiting)) == {"a": ["t"]}
    for topics in ({}, {"t": TopicReport(term=2, state="claimed")}, {"t": TopicReport(term=2, state="waiting")}):
        assert awaited_topics(VIEW, said(VIEW, Report(topics=topics))) == {}


@pytest.mark.rule("CM12")
def test_of_two_topics_whose_names_differ_only_by_case_there_is_one() -> None:
    wishes = [
        Wish(id=name, kind="adopt", topic=name, topic_id=f"id of {name}") for name in ("orders", "Orders", "orders")
    ]
    both = planned(VIEW, None, *wishes[:2])
    assert {"orders", "Orders"} & both.topics.keys() == {"orders"}
    assert both.wishes["Orders"] == "there is a topic orders, which differs from Orders only by case"
    assert both.wishes["orders"] == ""
    # Nor where its table is found.
    found = Seen(said(both, Report()), tables={"ORDERS": "id of ORDERS"})
    assert plan(both, found, "b", "b1", "m2") is None
    gone = Wish(id="gone", kind="forget", topic="orders", topic_id="id of orders")
    after = planned(both, None, gone, Wish(id="again", kind="adopt", topic="Orders", topic_id="id of Orders"))
    assert {"orders", "Orders"} & after.topics.keys() == {"Orders"}


@pytest.mark.rule("KF27")
def test_a_topic_is_made_where_it_is_wished_for() -> None:
    wish = Wish(id="w", kind="adopt", topic="new", topic_id="id", node="c", patient=True)
    for name in ("b", "c"):  # one of them has a topic already, and would not be chosen
        assert planned(VIEW, None, replace(wish, node=name)).topics["new"].owner.node == name
    assert planned(VIEW, None, replace(wish, node="nobody")).topics["new"].owner.node != "nobody"
    # Its table was found first, and it was placed elsewhere.
    found = replace(VIEW, topics={"new": TopicEntry(topic_id="id", chain=(OWNER,))})
    assert "w" not in planned(found, None, wish).wishes
    assert planned(found, None, replace(wish, patient=False)).wishes["w"] == ""


@pytest.mark.rule("CM11")
def test_what_a_later_release_asks_for_is_refused_and_what_else_it_asks_for_is_done() -> None:
    unknown, known = Wish(id="w1", kind="cheer"), Wish(id="w2", kind="drain", node="c")
    after = planned(VIEW, None, unknown, known)
    assert "does not know what 'cheer' is" in after.wishes["w1"]
    assert (after.wishes["w2"], after.nodes["c"].state) == ("", "draining")


def test_a_move_that_comes_too_early_waits_for_patience_and_is_refused_without() -> None:
    early = replace(VIEW, topics={"t": TopicEntry(topic_id="t", chain=(OWNER,))})
    patient = Wish(id="w", kind="move", topic="t", node="c", patient=True)
    assert "w" not in planned(early, None, patient).wishes
    assert "is not owned yet" in planned(early, None, replace(patient, patient=False)).wishes["w"]
    moved = planned(early, TopicReport(term=2, state="claimed"), patient)
    assert (moved.wishes["w"], moved.topics["t"].to and moved.topics["t"].to.node) == ("", "c")


@pytest.mark.rule("CO5")
def test_what_no_term_explains_goes_where_it_is_wished_for_though_nobody_owns_it() -> None:
    wanted = Wish(id="w", kind="move", topic="t", node="c")
    given = planned(VIEW, TopicReport(term=2, state="waiting", unexplained=1), wanted)
    assert (given.wishes, given.topics["t"].owner.node, given.topics["t"].to) == ({"w": ""}, "c", None)
    assert OWNER in given.topics["t"].chain, "a slow claim under it may land"
    for report in (TopicReport(term=2, state="waiting", awaited=1), TopicReport(term=2, state="waiting", held=1)):
        assert "is not owned yet" in planned(VIEW, report, wanted).wishes["w"]
