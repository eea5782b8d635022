"""Where topics are by a view, and how news of that is heard."""

import asyncio

import pytest

from siltlog.infra.cluster.router import HERE, UNKNOWN, WAIT, Away, Held, Member, There
from siltlog.infra.cluster.routes import ViewRoutes
from siltlog.infra.cluster.view import ClusterView, NodeEntry, TermEntry, TopicEntry


def node(journal: str, **given: object) -> NodeEntry:
    return NodeEntry(data_dir="d", place="p", journal=journal, url=f"http://{journal}", **given)  # type: ignore[arg-type]


def term(number: int, name: str, journal: str = "", *, lost: bool = False) -> TermEntry:
    return TermEntry(term=number, node=name, data_dir="d", journal=journal or f"{name}-1", lost=lost)


def topic(*chain: TermEntry, to: TermEntry | None = None) -> TopicEntry:
    return TopicEntry(topic_id="id", chain=chain, to=to)


A, B = Member("a", "a-1", "http://a-1"), Member("b", "b-1", "http://b-1")


class World:
    """What a node, `a`, sees."""

    def __init__(self, **topics: TopicEntry) -> None:
        nodes = {"a": node("a-1"), "b": node("b-1"), "c": node("c-2"), "d": node("d-1", state="away", since_us=7)}
        self.view = ClusterView(
            number=3, cluster_id="c", controller="a", journal="a-1", nonce="n", nodes=nodes, topics=topics
        )
        self.held: dict[str, Held] = {}
        self.awaited: dict[str, str] = {}
        self.fresh = True
        self.hurried: list[int] = []
        self.routes = ViewRoutes(
            lambda: self.view,
            lambda: "a-1",
            lambda: self.fresh,
            lambda name: self.held.get(name, Held.NOT),
            lambda name: self.awaited.get(name, ""),
            self.hurried.append,
        )


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (topic(term(1, "b")), There(B)),
        (topic(term(1, "a")), WAIT),
        (topic(term(1, "b"), term(2, "a")), WAIT),
        (topic(term(1, "b"), to=term(2, "a")), There(B)),
        (topic(term(1, "b", lost=True)), WAIT),
        (topic(term(1, "d"), to=term(2, "b")), There(B)),
        (topic(term(1, "d")), WAIT),
        (topic(term(1, "c")), WAIT),
        (topic(term(1, "c", "c-2")), There(Member("c", "c-2", "http://c-2"))),
    ],
)
def test_a_topic_is_where_the_view_says_as_long_as_that_journal_is_not_lost(
    entry: TopicEntry, expected: object
) -> None:
    world = World(t=entry)
    assert world.routes.where("t") == expected
    world.held["t"] = Held.OPEN
    assert world.routes.where("t") == HERE
    world.fresh = False
    assert world.routes.where("t") == WAIT
    assert world.routes.where("t", decides=False) == HERE
    assert world.routes.where("u") == UNKNOWN
    assert world.routes.topics() == {"t": "id"}


def test_a_node_that_waits_for_another_disk_says_for_whose() -> None:
    world = World(t=topic(term(1, "d", lost=True), term(2, "a")))
    world.awaited["t"] = "d"
    assert world.routes.where("t") == Away("d", 7)
    world.held["t"] = Held.TAKING
    assert world.routes.where("t") == WAIT


def test_news_wake_all_who_wait_and_newer_views_are_looked_for() -> None:
    async def test() -> None:
        world = World()
        waiting = [asyncio.create_task(world.routes.changed(30)) for _ in range(3)]
        await asyncio.sleep(0)
        world.routes.look()
        async with asyncio.timeout(5):
            await asyncio.gather(*waiting)
        await world.routes.changed(0.01)
        for view in (2, 3, 4):
            world.routes.told(view)
        assert (world.hurried, world.routes.view) == ([4], 3)

    asyncio.run(test())
