"""The demo on three nodes, act by act."""

import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from siltlog.demo.cluster.account import Books, account
from siltlog.demo.cluster.nodes import NODE_IDS, Nodes
from siltlog.demo.cluster.result import ClusterResult, Loss
from siltlog.demo.cluster.table import rows
from siltlog.demo.data import Flights, flights_by_airport
from siltlog.demo.ledger import Ledger
from siltlog.demo.publishing import Programme, Publisher, Single
from siltlog.demo.reading import Member
from siltlog.demo.result import Quantiles
from siltlog.demo.run import GROUP, SWITCH_INTERVAL_S, await_readers, empty, wait
from siltlog.demo.stage import Counts, Stage
from siltlog.infra.client.admin import Admin
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError

PARTITIONS = 4
MEMBERS = ("reader-1", "reader-2", "reader-3")
STEADY_S = 20.0
LEASE_MS = 5_000
HEARTBEAT_MS = 1_500
SINGLES_S = 60.0
SINGLES_SHARE = 0.2
"""The largest share of a topic that goes as single records, should all take as long as `SINGLES_S`."""
SINGLE_S_MIN = 0.01
FIRST_LOSS, SECOND_LOSS = (0.25, 0.4), (0.5, 0.65)
"""Shares of the flights: a node is killed once the first is acknowledged, and the streams stop at the second until its
topics go on elsewhere. However slow the machine is, records are on their way at each kill and after it."""
RETURN = 0.85
"""The share at which the streams stop until the new machines are members, so that they take topics over under load."""
SPREAD_S_MAX = 15.0
"""Nodes that join are given topics by themselves; past that an operator's `silt cluster balance` does it."""
KILL_LOOK_S = 0.002


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    data_dir: Path
    records: int
    port: int = 0
    steady_s: float = STEADY_S
    lease_ms: int = LEASE_MS
    heartbeat_ms: int = HEARTBEAT_MS


class Play:
    """What all acts share. `topics` says which flights each has, and `publishers` are in the same order."""

    def __init__(self, plan: ClusterPlan, nodes: Nodes, topics: Mapping[str, Flights], stage: Stage, clock: Clock):
        self.nodes = nodes
        self.topics = topics
        self.stage = stage
        self.clock = clock
        self.total = sum(map(len, topics.values()))
        self.admin = Admin(nodes.urls)
        self.shifts = {topic: number * PARTITIONS for number, topic in enumerate(topics)}
        self.publishers = [
            Publisher(nodes.urls, topic, data, _programme(len(data), plan.steady_s), clock)
            for topic, data in topics.items()
        ]
        self.members = [Member(name, nodes.urls, GROUP, self.shifts, clock) for name in MEMBERS]

    def counts(self) -> Counts:
        return Counts(
            sum(publisher.published for publisher in self.publishers),
            self.acknowledged,
            sum(member.count for member in self.members),
        )

    @property
    def acknowledged(self) -> int:
        return sum(publisher.acknowledged_in_a_row for publisher in self.publishers)

    @property
    def controller(self) -> str:
        return str(self.admin.cluster()["controller"])

    def owners(self) -> dict[str, str]:
        """Topic -> its owner, empty while it has none."""
        return {topic: str(self.admin.topic(topic).get("owner") or "") for topic in self.topics}

    def holdings(self) -> dict[str, list[str]]:
        """Node -> the topics that it owns, the system's too."""
        held: dict[str, list[str]] = {node: [] for node in NODE_IDS}
        for topic in self.admin.topics():
            if topic.get("owner"):
                held[topic["owner"]].append(topic["name"])
        return held

    def members_up(self) -> bool:
        return [node["state"] for node in self.admin.nodes()] == ["up"] * len(NODE_IDS)

    def open_to(self, share: float) -> None:
        for publisher, data in zip(self.publishers, self.topics.values(), strict=True):
            publisher.open_to(int(len(data) * share))

    def until(self, ready: Callable[[], bool], what: str, **look: float) -> None:
        """Raises SiltlogError where `ready` stays False; what went wrong in a publisher comes first."""

        def asked() -> bool:
            if any(publisher.failed for publisher in self.publishers):
                return True
            try:
                return ready()
            except SiltlogError as error:
                if error.retryable == "no":
                    raise
                return False  # the node that was asked has just gone

        wait(self.clock, asked, what, **look)
        for publisher in self.publishers:
            if publisher.failed:
                publisher.join()


def run(plan: ClusterPlan, stage: Stage, clock: Clock) -> ClusterResult:
    """Runs the whole demo in a fresh `plan.data_dir`.

    Raises SiltlogError where it could not go on; what went on and was wrong is a failed check of the result.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    began = clock.monotonic()
    empty(plan.data_dir)
    nodes = Nodes(plan.data_dir, plan.port, plan.lease_ms, plan.heartbeat_ms, clock)
    try:
        stage.act("Three nodes over one root, and a year of flights")
        with ThreadPoolExecutor(1, thread_name_prefix="demo-nodes") as pool:
            starting = pool.submit(nodes.start)
            with stage.waiting("starting three nodes and a Valkey, reading the flights"):
                topics = {f"flights.{name}": part for name, part in flights_by_airport(plan.records).items()}
                starting.result()
        play = Play(plan, nodes, topics, stage, clock)
        result = ClusterResult(
            play.total, {name: len(part) for name, part in topics.items()}, nodes.urls, plan.data_dir
        )
        with play.admin:
            _hand_out(play)
            _publish_and_read(play, result)
            _look_at_nodes(play, result)
        result.seconds = clock.monotonic() - began
        with stage.waiting("stopping one node after the other"):
            statuses = nodes.stop()
        said = ", ".join(map(str, statuses))
        result.check("clean stop", not any(statuses), f"SIGTERM, one after the other: ended with status {said}")
    finally:
        nodes.end()
    return result


def _programme(records: int, steady_s: float) -> Programme:
    single_s = max(SINGLE_S_MIN, SINGLES_S / max(1.0, records * SINGLES_SHARE))
    return Programme(records, max(1.0, records / steady_s), single_s)


def _hand_out(play: Play) -> None:
    """Makes a topic for each airport; each node gets one, and the busiest goes to a node that is not the controller."""
    stage = play.stage
    for node, url in zip(NODE_IDS, play.nodes.urls, strict=True):
        stage.say(f"{node}   {url}   process {play.nodes.pid(node)}, a disk of its own")
    for topic in play.topics:
        play.admin.create_topic(topic, partitions=PARTITIONS, config={"acks": "object"})
    play.until(lambda: all(play.owners().values()), "owners of the topics")
    controller = play.controller
    # The controller's is the last: the least busy.
    wanted = dict(zip(play.topics, [*(node for node in NODE_IDS if node != controller), controller], strict=False))
    for topic, node in wanted.items():
        if play.owners()[topic] != node:
            play.admin.move_topic(topic, node)
    play.until(lambda: play.owners() == wanted, "the topics to be at a node each")
    for topic, node in wanted.items():
        role = ", the controller" if node == controller else ""
        stage.say(f"{topic}   {len(play.topics[topic]):,} flights, owned by {node}{role}")


def _publish_and_read(play: Play, result: ClusterResult) -> None:
    play.stage.act("Publishing with acks=object while a group of three reads")
    play.open_to(FIRST_LOSS[1])
    for member in play.members:
        member.start()
    for publisher in play.publishers:
        publisher.start()
    try:
        with play.stage.alone(), play.stage.counting(play.counts, play.total):
            busiest = next(iter(play.topics))
            result.losses.append(_lose(play, play.owners()[busiest], "owner", FIRST_LOSS[0]))
            play.open_to(SECOND_LOSS[1])
            result.losses.append(_lose(play, play.controller, "controller", SECOND_LOSS[0]))
            play.open_to(RETURN)
            _replace(play, result)
            play.open_to(1.0)
            for publisher in play.publishers:
                publisher.join()
            await_readers(play.members, play.total, play.clock)
    finally:
        for publisher in play.publishers:
            publisher.abandon()
        for member in play.members:
            member.stop()
    with play.stage.waiting("the last records settle into the tables"):
        play.until(lambda: all(map(_is_settled, map(play.admin.offsets, play.topics))), "the tables to have everything")
    _account(play, result)


def _lose(play: Play, node: str, was: str, share: float) -> Loss:
    """Waits for its moment, when records are on their way; kills the node and removes its disk."""
    publishers, clock, stage = play.publishers, play.clock, play.stage
    play.until(
        lambda: play.acknowledged >= play.total * share and play.counts().published > play.acknowledged,
        "the moment of a kill",
        look_s=KILL_LOOK_S,
    )
    owned = tuple(sorted(topic for topic, owner in play.owners().items() if owner == node))
    pid = play.nodes.pid(node)
    acknowledged = sum(len(publisher.acknowledged()) for publisher in publishers)
    sent, began = sum(publisher.published for publisher in publishers), clock.monotonic()
    play.nodes.lose(node)
    where = f", which owned {_named(owned)}," if owned else ""
    stage.say(f"kill -9 {pid}; rm -r {node}: the {was}{where} is gone, and its disk with it", "red")
    play.until(
        lambda: all(publisher.answered_since(began) for publisher in publishers), f"the topics of {node} to go on"
    )
    ended = clock.monotonic()
    play.until(lambda: {node, ""}.isdisjoint((*play.owners().values(), play.controller)), f"a successor of {node}")
    taken_by = {topic: owner for topic, owner in play.owners().items() if topic in owned}
    loss = Loss(node, was, owned, acknowledged, sent - acknowledged, began, ended, taken_by, play.controller)
    stage.say(f"after {loss.seconds:.2f} s all goes on: {taken(loss)}", "green")
    return loss


def _replace(play: Play, result: ClusterResult) -> None:
    """Replaces nodes as one replaces machines: with the same names and addresses, and empty disks."""
    result.replaced = tuple(loss.node for loss in result.losses)
    began = play.clock.monotonic()
    play.nodes.replace(result.replaced)
    play.until(play.members_up, "the new machines to be members")
    result.replaced_s = play.clock.monotonic() - began
    play.stage.say(f"{_named(result.replaced)} are back on empty disks after {result.replaced_s:.2f} s", "green")


def _look_at_nodes(play: Play, result: ClusterResult) -> None:
    """Waits until each node owns something again, and notes what."""
    deadline = play.clock.monotonic() + SPREAD_S_MAX
    is_balanced = False

    def spread() -> bool:
        nonlocal is_balanced
        result.owners = play.holdings()
        if not is_balanced and play.clock.monotonic() > deadline:
            play.admin.balance()
            is_balanced = True
        return all(result.owners.values())

    with play.stage.waiting("each node gets topics again"):
        try:
            play.until(spread, "each node to own a topic")
        except SiltlogError as error:
            result.check("whole again", False, error.detail)
            return
    result.check("whole again", play.members_up(), f"{len(NODE_IDS)} nodes are up, and each owns a topic")


def _account(play: Play, result: ClusterResult) -> None:
    """Compares all that was published with all that is there, record by record."""
    publishers = play.publishers
    shifted = list(zip(publishers, play.shifts.values(), strict=True))
    books = Books(
        written=Ledger.concat([publisher.ledger().shifted(shift) for publisher, shift in shifted]),
        streams=[publisher.ledger(publisher.stream) for publisher in publishers],
        read=[member.ledger() for member in play.members],
        rows=Ledger.concat([rows(play.nodes.root, topic).shifted(shift) for topic, shift in play.shifts.items()]),
        errors=[f"{member.name}: {member.error}" for member in play.members if member.error],
    )
    result.published = sum(delivery is not None for publisher in publishers for delivery in publisher.deliveries)
    result.members = {member.name: member.count for member in play.members}
    account(books, result)
    singles = {topic: publisher.singles for topic, publisher in zip(play.topics, publishers, strict=True)}
    result.waits_s = [
        {topic: max((_wait_s(single) for single in alone if _touches(loss, single)), default=0.0)
         for topic, alone in singles.items()}
        for loss in result.losses
    ]  # fmt: skip
    result.ack_ms = Quantiles.of(
        [
            _wait_s(single) * 1000
            for alone in singles.values()
            for single in alone
            if not any(_touches(loss, single) for loss in result.losses)
        ]
    )
    for loss, waits in zip(result.losses, result.waits_s, strict=True):
        moved = all(loss.taken_by.get(topic, loss.node) != loss.node for topic in loss.owned)
        result.check(
            f"without the {loss.was}",
            moved and loss.controller != loss.node,
            f"{loss.node} is gone: {taken(loss)}; the longest wait was {max(waits.values()):.2f} s",
        )


def taken(loss: Loss) -> str:
    """Tells who took over what."""
    parts = [f"{topic} at {node}" for topic, node in loss.taken_by.items()]
    if loss.was == "controller":
        parts.append(f"{loss.controller} is the controller")
    return ", ".join(parts)


def _wait_s(single: Single) -> float:
    return single.acknowledged - single.sent


def _touches(loss: Loss, single: Single) -> bool:
    return single.sent < loss.ended and single.acknowledged > loss.began


def _is_settled(offsets: Iterable[Mapping[str, int]]) -> bool:
    return all(entry["table_offset"] == entry["high_watermark"] for entry in offsets)


def _named(words: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(words))
