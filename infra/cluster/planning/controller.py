"""What the controller puts into the next view, from what the nodes say of themselves. Pure."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from siltlog.infra import names
from siltlog.infra.cluster.beat import Beat
from siltlog.infra.cluster.planning.draft import Draft
from siltlog.infra.cluster.planning.placement import balance, counts, place, unit_of
from siltlog.infra.cluster.planning.wishes import granted
from siltlog.infra.cluster.view import ClusterView

ACCUSERS_MIN = 2
STALLED_MS = 5_000
"""A journal that has landed nothing for so long, and has something to land, stands still."""
JOIN_BEHIND_MAX = 16
"""How many views may come between a node's start and its beat; a beat that lags behind more is no sign of a start."""
AT_ONCE_MAX = 64
"""Hand-overs for the sake of balance that are under way at once."""


class Seen(NamedTuple):
    """What a round of the controller goes by."""

    beats: Mapping[str, Beat]
    lost: Collection[str] = ()
    """Nodes whose journals are lost."""
    unready: Collection[str] = ()
    """Nodes that have been unready, or out of reach, for too long."""
    redisless: Collection[str] = ()
    """Nodes that have been without Redis for too long to keep what groups commit."""
    overdue: Collection[tuple[str, int]] = ()
    """Topics, with terms that were claimed by nobody for too long."""
    tables: Mapping[str, str] = {}
    """Topics whose tables were found, with their ids; empty for those that are gone."""
    format: int = 0
    """What all members have offered for long enough; 0 where that is nothing new."""
    now_us: int = 0


def plan(view: ClusterView, seen: Seen, controller: str, journal: str, nonce: str) -> ClusterView | None:
    """The next view, with all that is to change; None where nothing is."""
    draft = Draft(view, seen.beats, seen.now_us)
    draft.format = max(draft.format, seen.format)
    _leave(draft, seen)
    _join(draft)
    for node in sorted(draft.nodes):
        draft.introduce(node)
    _drain(draft, seen)
    for name, topic_id in sorted(seen.tables.items()):
        if topic_id:
            _adopt(draft, name, topic_id)
        elif name in draft.topics:
            draft.forget(name)
    granted(draft)
    for name in sorted(draft.topics, key=lambda name: (unit_of(name), name)):
        _reported(draft, name)
        _owned(draft, name, seen)
    _together(draft)
    _kept(draft, seen)
    _balance(draft)
    return draft.finished(controller, journal, nonce)


def unready(view: ClusterView, beats: Mapping[str, Beat]) -> set[str]:
    """Members that beat and cannot acknowledge, whose journal stands still, or that most others cannot reach."""
    others = len(dict(view.members())) - 1
    own = _own(view, beats)
    found = set()
    for node, beat in own.items():
        accusers = _accusers(node, own)
        cannot = not beat.report.ready or beat.report.unlanded_ms >= STALLED_MS
        if cannot or (accusers >= ACCUSERS_MIN and 2 * accusers > others):
            found.add(node)
    return found


def cut_off(view: ClusterView, beats: Mapping[str, Beat]) -> set[str]:
    """Members that beat and that no other reaches."""
    others = len(dict(view.members())) - 1
    own = _own(view, beats)
    return {node for node in own if _accusers(node, own) >= max(others, ACCUSERS_MIN)}


def redisless(view: ClusterView, beats: Mapping[str, Beat]) -> set[str]:
    """Members that beat and whose Redis does not answer them."""
    return {node for node, beat in _own(view, beats).items() if beat.report.redisless}


def _own(view: ClusterView, beats: Mapping[str, Beat]) -> dict[str, Beat]:
    """The beats of members, by node; not those of other processes under their names."""
    return {
        node: beats[node] for node, entry in view.members() if node in beats and beats[node].journal == entry.journal
    }


def _accusers(node: str, own: Mapping[str, Beat]) -> int:
    return sum(node in beat.report.unreachable for name, beat in own.items() if name != node)


def offers(view: ClusterView, beats: Mapping[str, Beat]) -> int:
    """The highest format that every member reads and writes; 0 while that is not known of one."""
    own = ((beats.get(node), entry.journal) for node, entry in view.members())
    return min((beat.formats if beat and beat.journal == journal else 0 for beat, journal in own), default=0)


def unclaimed(view: ClusterView, beats: Mapping[str, Beat]) -> set[tuple[str, int]]:
    """Topics, with terms of owners that neither own nor wait, or that wait for one that says nothing of having it, and
    of hand-overs that have not come about."""
    draft = Draft(view, beats, 0)
    found = set()
    for name, topic in view.topics.items():
        if not topic.owner.lost and (draft.report(name, topic.owner) is None or _holder(draft, name) is not None):
            found.add((name, topic.owner.term))
        if topic.to is not None and not topic.to.lost and not draft.claimed(name, topic.to):
            found.add((name, topic.to.term))
    return found


def _leave(draft: Draft, seen: Seen) -> None:
    for node, entry in sorted(draft.view.members()):
        beat = draft.beats.get(node)
        if node in seen.lost or (beat is not None and beat.journal == entry.journal and beat.going == "away"):
            draft.lose(node)


def _join(draft: Draft) -> None:
    for node, beat in sorted(draft.beats.items()):
        entry = draft.nodes.get(node)
        new = entry is None or entry.journal != beat.journal
        stale = draft.removed.get(node) == beat.journal or beat.view < draft.view.number - JOIN_BEHIND_MAX
        lost = entry is not None and beat.journal in entry.ends
        if not new or stale or lost or beat.going != "on" or beat.formats < draft.format:
            continue
        if entry is not None and entry.state != "away" and entry.journal not in beat.ends:
            continue  # another process may still be that node
        # This data directory is held by one process: what it was before is over, under whatever name.
        for former, other in sorted(draft.nodes.items()):
            if other.state != "away" and other.journal in beat.ends and other.data_dir == beat.data_dir:
                draft.lose(former)
        if entry is not None and draft.nodes[node].state != "away":
            continue
        for journal in beat.ends:
            draft.lose_journal(journal)
        draft.join(beat)
        if not beat.report.ready:
            draft.drain(node, "unready")
        draft.balancing = True


def _drain(draft: Draft, seen: Seen) -> None:
    ailing = unready(replace(draft.view, nodes=draft.nodes), draft.beats)
    for node, entry in sorted(draft.nodes.items()):
        beat = draft.beat_of(node)
        if entry.state != "away" and beat is not None and beat.going == "draining" and entry.drain != "stop":
            draft.drain(node, "stop")
        elif entry.state == "up" and node in seen.unready and set(draft.up()) - set(seen.unready):
            draft.drain(node, "unready")
        elif entry.drain == "unready" and entry.state == "draining" and beat is not None and node not in ailing:
            draft.fill(node)
            draft.balancing = True


def _adopt(draft: Draft, name: str, topic_id: str) -> None:
    """A topic that is in no view; one of the same name before it is gone. Where no node is up, one that cannot
    acknowledge yet is given it: else all say that there is no such topic."""
    known = draft.topics.get(name)
    node = place(name, draft.up() or draft.starting(), draft.places())
    if draft.alike(name):
        return  # whoever made it is told, and takes it away
    if node is not None and (known is None or known.topic_id != topic_id):
        draft.add(name, topic_id, node)


def _reported(draft: Draft, name: str) -> None:
    """What the owner, and who is to be it, say of a topic."""
    topic = draft.topics[name]
    if topic.to is not None and (draft.claimed(name, topic.to) or _superseded(draft, name)):
        draft.hand_over(name)
    elif topic.to is not None and (found := draft.report(name, topic.owner)) and found.kept == topic.to.term:
        draft.keep(name)
    topic = draft.topics[name]
    if topic.abandon and draft.claimed(name, topic.owner):
        draft.abandon(name, 0)
    report = draft.report(name, topic.owner)
    if report is not None and report.state == "settled":
        draft.settle(name)
    if report is not None and report.floor >= topic.owner.term and not topic.owner.lost:
        draft.give(name, topic.owner.node, report.floor)
    target = draft.report(name, topic.to)
    if topic.to is not None and target is not None and target.floor >= topic.to.term:
        draft.hand(name, topic.to.node, target.floor)


def _superseded(draft: Draft, name: str) -> bool:
    """Whether who is to own the topic waits for a claim that came after the owner's: of one to whom it was to go
    before, and who died with it, or failed to take it. The owner has let go of it, and nobody waits for that any more.
    """
    topic = draft.topics[name]
    waits = draft.report(name, topic.to)
    return waits is not None and max(waits.awaited, waits.unexplained, waits.held) > topic.owner.term


def _owned(draft: Draft, name: str, seen: Seen) -> None:
    """Finds another owner where there must be one."""
    topic = draft.topics[name]
    if topic.to is not None and topic.to.lost:
        draft.keep(name)
        topic = draft.topics[name]
    if topic.owner.lost:
        if topic.to is not None:
            draft.hand_over(name)
        elif (node := _back(draft, name)) or (node := place(name, draft.up(), _others(draft, name))):
            draft.give(name, node)
        return
    if (waiting := draft.waiting(name)) is not None:
        if (name, topic.owner.term) in seen.overdue and (holder := _holder(draft, name)):
            draft.give(name, holder)
            return
        awaited = topic.term(waiting.awaited)
        home = awaited and awaited.lost and _home(draft, awaited.data_dir, ("up", "draining"))
        if home and home != topic.owner.node:
            draft.give(name, home)
        return
    entry = draft.nodes[topic.owner.node]
    others = [node for node in draft.up() if node != topic.owner.node]
    if topic.to is not None:
        _stuck(draft, name, seen)
    elif entry.state == "draining" and others and not _returned(draft, name):
        move = draft.hand if draft.claimed(name, topic.owner) else draft.give
        move(name, place(name, others, _others(draft, name)) or others[0])
    elif (name, topic.owner.term) in seen.overdue and others:
        draft.give(name, place(name, others, _others(draft, name)) or others[0])


def _holder(draft: Draft, name: str) -> str | None:
    """The member whose claim landed, and who says nothing of having the topic: its take failed, so it hands over
    nothing, and only it can claim it anew."""
    waiting = draft.waiting(name)
    term = draft.topics[name].term(waiting.held) if waiting is not None else None
    if term is None or term.lost or draft.report(name, term) is not None:
        return None
    entry = draft.nodes.get(term.node)
    return term.node if entry is not None and entry.journal == term.journal and entry.state != "away" else None


def _returned(draft: Draft, name: str) -> bool:
    """Whether the owner is to claim anew what it claimed before: it alone can hand that on, so also who drains is given
    its time."""
    topic = draft.topics[name]
    owner = topic.owner
    before = (term for term in topic.chain if term.term < owner.term and not term.lost)
    return not draft.claimed(name, owner) and owner.journal in {term.journal for term in before}


def _stuck(draft: Draft, name: str, seen: Seen) -> None:
    """A hand-over whose target does not claim, or leaves."""
    topic = draft.topics[name]
    assert topic.to is not None
    owner, target = draft.nodes[topic.owner.node], draft.nodes[topic.to.node]
    overdue = (name, topic.to.term) in seen.overdue
    if overdue and owner.drain == "unready" and owner.state == "draining":
        draft.lose(topic.owner.node)  # it does not let go; who claims next ends what it still does
        draft.give(name, topic.to.node)
        return
    silent = overdue and draft.report(name, topic.to) is None
    others = [node for node in draft.up() if node not in (topic.owner.node, topic.to.node)]
    if silent or target.state != "up":
        if others:
            draft.hand(name, place(name, others, _others(draft, name)) or others[0])
        elif target.state != "up" and owner.state == "up":
            draft.keep(name)


def _others(draft: Draft, name: str) -> dict[str, str]:
    return {other: node for other, node in draft.places().items() if other != name}


def _back(draft: Draft, name: str) -> str | None:
    """A member with the data directory of one of the topic's terms, of the newest first."""
    homes = (_home(draft, term.data_dir) for term in reversed(draft.topics[name].chain))
    return next((node for node in homes if node), None)


def _home(draft: Draft, data_dir: str, states: Collection[str] = ("up",)) -> str | None:
    """The member with that data directory. One that drains can only flush what it has, and hand that over."""
    return next((n for n, entry in draft.nodes.items() if entry.data_dir == data_dir and entry.state in states), None)


def _movable(draft: Draft, name: str) -> bool:
    topic = draft.topics[name]
    return topic.to is None and draft.claimed(name, topic.owner)


def _together(draft: Draft) -> None:
    """Dead letters go where what they were lies."""
    places, up = draft.places(), draft.up()
    for name in sorted(draft.topics):
        home = places.get(unit_of(name))
        if home in up and home != places[name] and home is not None and _movable(draft, name):
            draft.hand(name, home)


def _kept(draft: Draft, seen: Seen) -> None:
    """Moves what groups commit away from a node without Redis: all groups wait for that one, at nodes that have one."""
    name = names.OFFSETS_TOPIC
    if name in draft.topics and draft.topics[name].owner.node in seen.redisless and _movable(draft, name):
        others = set(draft.up()) - redisless(draft.view, draft.beats)
        if node := place(name, others, _others(draft, name)):
            draft.hand(name, node)


def _balance(draft: Draft) -> None:
    if not draft.balancing:
        return
    up, places = draft.up(), draft.places()
    movable = [name for name in draft.topics if _movable(draft, name)]
    if redisless(draft.view, draft.beats) and names.OFFSETS_TOPIC in movable:
        movable.remove(names.OFFSETS_TOPIC)
    under_way = _under_way(draft)
    moves = sorted(balance(up, places, movable).items())
    for name, node in moves[: max(0, AT_ONCE_MAX - under_way)]:
        draft.hand(name, node)
    found = counts(up, draft.places()).values()
    unsure = any(
        topic.owner.node in up and not draft.claimed(name, topic.owner) and draft.waiting(name) is None
        for name, topic in draft.topics.items()
    )
    if not moves and not under_way and (not unsure or not found or max(found) - min(found) <= 1):
        draft.balancing = False


def _under_way(draft: Draft) -> int:
    """How many topics are being handed over. Each may come to nothing, and stay where it was too much."""
    return sum(topic.to is not None for topic in draft.topics.values())
