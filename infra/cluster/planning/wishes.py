"""What operators ask the controller for, and what nodes tell it of: each is looked at once. Pure."""

from collections.abc import Callable, Mapping

from siltlog.infra.cluster.beat import Wish
from siltlog.infra.cluster.planning.draft import Draft
from siltlog.infra.cluster.planning.placement import place, unit_of


def granted(draft: Draft) -> None:
    """Does what is wished for, or says why not, by the ids of the wishes; what is too early for patience stays."""
    for _, beat in sorted(draft.beats.items()):
        for wish in beat.wishes:
            look = _OF_KIND.get(wish.kind, _unknown)
            if wish.id not in draft.wishes and (said := look(draft, wish)) is not None:
                draft.wishes[wish.id] = said


def _unknown(draft: Draft, wish: Wish) -> str:
    """It is of a later release than this one, which is the controller's."""
    return f"the controller's release does not know what {wish.kind!r} is: ask again once all nodes are upgraded"


def _drain(draft: Draft, wish: Wish) -> str:
    entry = draft.nodes.get(wish.node)
    if entry is None:
        return f"there is no node {wish.node}"
    if entry.state == "away":
        return f"node {wish.node} is away; `silt node remove` takes it out of the list"
    if not set(draft.up()) - {wish.node}:
        return f"no other node is up: the topics of {wish.node} could go nowhere"
    if entry.drain != "stop":
        draft.drain(wish.node, "operator")
    return ""


def _remove(draft: Draft, wish: Wish) -> str:
    entry = draft.nodes.get(wish.node)
    if entry is None:
        return f"there is no node {wish.node}"
    if entry.state != "away":
        return f"node {wish.node} is {entry.state}: stop it first"
    waiting = sorted(name for name in draft.topics if _awaits(draft, name, entry.data_dir))
    if waiting:
        return f"the data directory of node {wish.node} has records of {', '.join(waiting[:10])} that no table has"
    draft.remove(wish.node)
    return ""


def _awaits(draft: Draft, name: str, data_dir: str) -> bool:
    waiting = draft.waiting(name)
    awaited = draft.topics[name].term(waiting.awaited) if waiting else None
    return awaited is not None and awaited.data_dir == data_dir


def _move(draft: Draft, wish: Wish) -> str | None:
    """None while a move before, or the topic's making, has still to come about."""
    topic = draft.topics.get(wish.topic)
    if topic is None:
        return f"there is no topic {wish.topic}"
    if unit_of(wish.topic) != wish.topic and unit_of(wish.topic) in draft.topics:
        return f"{wish.topic} goes with {unit_of(wish.topic)}: move that"
    here = (topic.to or topic.owner).node
    others = [node for node in draft.up() if node != here]
    places = {name: node for name, node in draft.places().items() if name != wish.topic}
    node = wish.node or place(wish.topic, others, places)
    if node is None:
        return f"no other node is up than {here}"
    if node not in draft.up():
        return f"node {node} is not up" if node in draft.nodes else f"there is no node {node}"
    if node == here:
        return ""
    waiting = draft.waiting(wish.topic)
    if waiting is not None and waiting.unexplained:
        # Its owner has nothing of it to hand over, and may never have: a server that was alone took it last.
        draft.give(wish.topic, node)
        return ""
    if not draft.claimed(wish.topic, topic.owner):
        if wish.patient:
            return None
        return f"{wish.topic} is not owned yet by {topic.owner.node}, to which it belongs: nobody can hand it over"
    if node == topic.owner.node:
        if wish.patient:
            return None
        return f"{wish.topic} is being handed over to {here}: wait for that"
    draft.hand(wish.topic, node)
    return ""


def _abandon(draft: Draft, wish: Wish) -> str:
    topic = draft.topics.get(wish.topic)
    if topic is None:
        return f"there is no topic {wish.topic}"
    waiting = draft.waiting(wish.topic)
    if waiting is None or not (waiting.awaited or waiting.unexplained):
        return f"{wish.topic} waits for no node that is away: there is nothing to give up"
    awaited = topic.term(waiting.awaited)
    homes = (
        node
        for node, entry in sorted(draft.nodes.items())
        if awaited is not None and entry.state != "away" and entry.data_dir == awaited.data_dir
    )
    if home := next(homes, None):
        return f"node {home} is {draft.nodes[home].state}, and has what {wish.topic} waits for"
    draft.abandon(wish.topic, max(waiting.awaited, waiting.unexplained))
    return ""


def _balance(draft: Draft, wish: Wish) -> str:
    draft.balancing = True
    return ""


def _adopt(draft: Draft, wish: Wish) -> str | None:
    known = draft.topics.get(wish.topic)
    if known is not None and known.topic_id == wish.topic_id:
        # Its table was found before anybody told of it, and it may be on its way to another node than is wished for.
        return None if wish.node in draft.up() and _move(draft, wish) is None else ""
    if alike := draft.alike(wish.topic):
        return f"there is a topic {alike}, which differs from {wish.topic} only by case"
    node = wish.node if wish.node in draft.up() else place(wish.topic, draft.up(), draft.places())
    if node is None:
        return "no node is up that could have it"
    draft.add(wish.topic, wish.topic_id, node)
    return ""


def _forget(draft: Draft, wish: Wish) -> str:
    known = draft.topics.get(wish.topic)
    if known is not None and known.topic_id == wish.topic_id:
        draft.forget(wish.topic)
    return ""


_OF_KIND: Mapping[str, Callable[[Draft, Wish], str | None]] = {
    "drain": _drain,
    "remove": _remove,
    "move": _move,
    "abandon": _abandon,
    "balance": _balance,
    "adopt": _adopt,
    "forget": _forget,
}
