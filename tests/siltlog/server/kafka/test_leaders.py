"""Views say who leads a topic where nodes share a root."""

import socket

import pytest

from siltlog.infra import names
from siltlog.infra.cluster.addresses import Addresses
from siltlog.infra.cluster.router import Held
from siltlog.infra.cluster.routes import ViewRoutes
from siltlog.infra.cluster.view import ClusterView, NodeEntry, TermEntry, TopicEntry
from siltlog.infra.settings.settings import ServerSettings
from siltlog.server.kafka.leaders import (
    NOBODY,
    Broker,
    Leader,
    OwnersLead,
    current_leader,
    destined,
    endpoints,
    find_broker,
    find_coordinator,
)
from siltlog.server.listener import kafka_address

REACHED = ("never told", 1)
ADDRESSES = Addresses(b"k" * 32, "c")
OWN_EPOCH = 7


def node(name: str, number: int, **given: str) -> NodeEntry:
    own = {"kafka": f"{name}.example:9092", "zone": f"zone {name}", **given}
    proof = own.pop("kafka_proof", ADDRESSES.kafka_proof(name, f"{name}1", own["kafka"]))
    at = f"http://{name}"
    return NodeEntry(
        data_dir=name,
        place=name,
        journal=f"{name}1",
        url=at,
        proof=ADDRESSES.proof(name, f"{name}1", at),
        number=number,
        kafka_proof=proof,
        **own,  # type: ignore[arg-type]
    )


def owned_by(name: str, term: int, *, to: str = "") -> TopicEntry:
    next_one = TermEntry(term=term + 1, node=to, data_dir=to, journal=f"{to}1") if to else None
    return TopicEntry(
        topic_id="t", chain=(TermEntry(term=term, node=name, data_dir=name, journal=f"{name}1"),), to=next_one
    )


NODES = {
    "a": node("a", 3),
    "b": node("b", 1),
    "silent": node("silent", 4, kafka=""),
    "false": node("false", 5, kafka_proof="none"),
    "new": node("new", 0),
    "gone": node("gone", 6, state="away"),
}


class Seen:
    """What the node `a` sees."""

    def __init__(self, **topics: TopicEntry) -> None:
        self.view = ClusterView(
            number=1, cluster_id="c", controller="b", journal="b1", nonce="n", nodes=NODES, topics=topics
        )
        self.held: dict[str, Held] = {}
        self.awaited: dict[str, str] = {}
        self.fresh = True
        routes = ViewRoutes(
            lambda: self.view,
            lambda: "a1",
            lambda: self.fresh,
            lambda name: self.held.get(name, Held.NOT),
            lambda name: self.awaited.get(name, ""),
            lambda view: None,
            ADDRESSES,
        )
        self.leaders = OwnersLead("a", routes, lambda: self.view, ADDRESSES, lambda topic: OWN_EPOCH)


@pytest.mark.rule("KF24")
def test_clients_are_told_of_members_that_have_a_number_and_a_proven_address() -> None:
    seen = Seen()
    b = Broker(1, "b.example", 9092, "zone b")
    assert seen.leaders.brokers(REACHED) == [b, Broker(3, "a.example", 9092, "zone a")]
    assert seen.leaders.own_id() == 3


@pytest.mark.rule("KF24", "KF25")
def test_the_owner_leads_under_its_term() -> None:
    seen = Seen(
        far=owned_by("b", 5),
        near=owned_by("a", 7),
        waiting=owned_by("a", 8),
        silent=owned_by("silent", 4),
        false=owned_by("false", 4),
        gone=owned_by("gone", 4),
        handed=owned_by("a", 9, to="b"),
        held=owned_by("a", 11, to="b"),
    )
    seen.held = {"near": Held.OPEN, "handed": Held.RELEASED, "held": Held.HOLDING}
    seen.awaited = {"waiting": "gone"}
    told = {topic: (seen.leaders.leader(topic), seen.leaders.replica(topic)) for topic in seen.view.topics}
    assert told == {
        "far": (Leader(1, 5), 1),
        "near": (Leader(3, OWN_EPOCH), 3),
        "waiting": (Leader(), 3),
        "silent": (Leader(), 4),
        "false": (Leader(), 5),
        "gone": (Leader(), 6),
        "handed": (Leader(1, 10), 3),
        "held": (Leader(), 3),
    }
    assert {topic: destined(seen.leaders, topic) for topic in ("near", "held", "gone")} == {
        "near": 3,
        "held": 1,
        "gone": 6,
    }
    assert [seen.leaders.going_to(topic) for topic in ("held", "near", "absent")] == [1, NOBODY, NOBODY]
    assert {topic for topic in seen.view.topics if seen.leaders.leads(topic)} == {"near"}
    assert seen.leaders.leads("absent"), "who asks for it is told that there is none"
    assert find_broker(seen.leaders, "far", REACHED) == Broker(1, "b.example", 9092, "zone b")
    assert find_broker(seen.leaders, "gone", REACHED) is None
    part = current_leader(seen.leaders, "far")
    assert part == {"current_leader": {"leader_id": 1, "leader_epoch": 5}}
    assert [each["host"] for each in endpoints(seen.leaders, [part, {}], REACHED)] == ["b.example"]
    assert current_leader(seen.leaders, "near") == current_leader(seen.leaders, "gone") == {}
    assert endpoints(seen.leaders, [{}], REACHED) == []


def test_all_nodes_send_members_of_groups_to_the_same_one() -> None:
    seen = Seen()
    assert find_coordinator(seen.leaders, REACHED) == Broker(1, "b.example", 9092, "zone b"), "nobody has made it yet"
    seen = Seen(**{names.OFFSETS_TOPIC: owned_by("a", 7)})
    assert find_coordinator(seen.leaders, REACHED) == Broker(1, "b.example", 9092, "zone b"), (
        "nobody has claimed it yet"
    )
    seen.held = {names.OFFSETS_TOPIC: Held.OPEN}
    assert find_coordinator(seen.leaders, REACHED) == Broker(3, "a.example", 9092, "zone a")


@pytest.mark.rule("KF25")
def test_an_owner_that_others_may_take_for_gone_takes_records_and_tells_no_offsets() -> None:
    seen = Seen(near=owned_by("a", 7))
    seen.held = {"near": Held.OPEN}
    seen.fresh = False
    assert seen.leaders.leads("near")
    assert not seen.leaders.leads("near", reads=True)
    assert seen.leaders.leader("near") == Leader(3, OWN_EPOCH)


@pytest.mark.parametrize(
    ("listen", "advertise", "told"),
    [
        ("127.0.0.1:0", "", "127.0.0.1:{port}"),
        ("0.0.0.0:0", "", "node.example:{port}"),
        ("127.0.0.1:0", "kafka.example:9999", "kafka.example:9999"),
        ("[::]:0", "", "node.example:{port}"),
    ],
)
def test_the_address_of_a_node_is_what_it_advertises_or_listens_at(listen: str, advertise: str, told: str) -> None:
    settings = ServerSettings(
        kafka_listen=listen,
        kafka_advertise=advertise,
        cluster="on",
        root="s3://b/p",
        advertise_url="https://node.example:7070",
        redis_url="redis://r",
    )
    assert kafka_address(settings, None) == advertise
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert kafka_address(settings, listener) == told.format(port=port)
