"""Places topics on nodes: by count, and each stays where it is unless there is a reason. Pure."""

from collections.abc import Iterable, Mapping

from siltlog.infra import names


def unit_of(topic: str) -> str:
    """The topic that this one goes with: dead letters lie where what they were lies."""
    while topic.endswith(names.DEAD_LETTER_SUFFIX):
        topic = topic.removesuffix(names.DEAD_LETTER_SUFFIX)
    return topic


def counts(nodes: Iterable[str], places: Mapping[str, str]) -> dict[str, int]:
    """How many topics each of `nodes` has, by `places` of topics; those that go with others do not count."""
    found = dict.fromkeys(sorted(nodes), 0)
    for topic, node in places.items():
        if unit_of(topic) == topic and node in found:
            found[node] += 1
    return found


def least(nodes: Iterable[str], places: Mapping[str, str]) -> str | None:
    """The node with the fewest topics, of equals the first by name; None of none."""
    found = counts(nodes, places)
    return min(found, key=lambda node: (found[node], node), default=None)


def place(topic: str, nodes: Iterable[str], places: Mapping[str, str]) -> str | None:
    """Where a topic goes that has no place: to what it goes with, else to where the fewest are."""
    nodes = set(nodes)
    with_it = places.get(unit_of(topic)) if unit_of(topic) != topic else None
    return with_it if with_it in nodes else least(nodes, places)


def balance(nodes: Iterable[str], places: Mapping[str, str], movable: Iterable[str]) -> dict[str, str]:
    """The fewest moves after which no node has two topics more than another, as far as `movable` topics can do it."""
    found = counts(nodes, places)
    here: dict[str, list[str]] = {node: [] for node in found}
    for topic in sorted(movable, reverse=True):
        if unit_of(topic) == topic and places.get(topic) in found:
            here[places[topic]].append(topic)
    moves: dict[str, str] = {}
    while found:
        target = min(found, key=lambda node: (found[node], node))
        givers = [node for node in found if here[node] and found[node] > found[target] + 1]
        if not givers:
            return moves
        giver = max(givers, key=lambda node: (found[node], node))
        moves[here[giver].pop()] = target
        found[giver] -= 1
        found[target] += 1
    return moves
