"""The next view in the making: what may become of nodes and topics in it. Pure.

Its methods keep what views promise: no term is given twice, and none that was given leaves a chain before a higher one
is claimed and settled; a journal that is lost stays so.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from siltlog.infra.cluster.beat import Beat, TopicReport
from siltlog.infra.cluster.view import ClusterView, DrainReason, NodeEntry, TermEntry, TopicEntry

KEPT_WISHES = 256
KEPT_REMOVED = 1000
KEPT_ENDS = 16


class Draft:
    def __init__(self, view: ClusterView, beats: Mapping[str, Beat], now_us: int) -> None:
        self.view = view
        self.beats = beats
        self.nodes = dict(view.nodes)
        self.topics = dict(view.topics)
        self._by_case: dict[str, str] | None = None
        self.removed = dict(view.removed)
        self.wishes = dict(view.wishes)
        self.balancing = view.balancing
        self.format = view.format
        self._term = view.term
        self._node_number = view.node_number
        self._now_us = now_us

    def finished(self, controller: str, journal: str, nonce: str) -> ClusterView | None:
        """The next view; None where it would say the same as the last."""
        after = replace(
            self.view,
            format=self.format,
            controller=controller,
            journal=journal,
            nodes=self.nodes,
            topics=self.topics,
            removed=_newest(self.removed, KEPT_REMOVED),
            wishes=_newest(self.wishes, KEPT_WISHES),
            balancing=self.balancing,
            term=self._term,
            node_number=self._node_number,
            dissolved=False,
        )
        return None if after == self.view else replace(after, number=self.view.number + 1, nonce=nonce)

    # Nodes.

    def up(self) -> list[str]:
        return sorted(node for node, entry in self.nodes.items() if entry.state == "up")

    def starting(self) -> list[str]:
        """The nodes that cannot acknowledge now, or not yet, and do not go."""
        return sorted(n for n, entry in self.nodes.items() if (entry.state, entry.drain) == ("draining", "unready"))

    def beat_of(self, node: str) -> Beat | None:
        """The beat of the journal by which it is a member."""
        beat, entry = self.beats.get(node), self.nodes.get(node)
        return beat if beat is not None and entry is not None and beat.journal == entry.journal else None

    def join(self, beat: Beat) -> None:
        former = self.nodes.get(beat.node)
        ends = () if former is None else (*former.ends[1 - KEPT_ENDS :], former.journal)
        self.nodes[beat.node] = NodeEntry(
            data_dir=beat.data_dir,
            place=beat.place,
            journal=beat.journal,
            url=beat.url,
            proof=beat.proof,
            number=0 if former is None else former.number,
            zone=beat.zone,
            ends=ends,
            since_us=self._now_us,
        )

    def introduce(self, node: str) -> None:
        """Has Kafka's clients know a member by its number, and by the address that its beat has."""
        entry, beat = self.nodes[node], self.beat_of(node)
        number = entry.number
        if not number:
            self._node_number += 1
            number = self._node_number
        if beat is not None:
            entry = replace(entry, kafka=beat.kafka, kafka_proof=beat.kafka_proof)
        self.nodes[node] = replace(entry, number=number)

    def drain(self, node: str, reason: DrainReason) -> None:
        self.nodes[node] = replace(self.nodes[node], state="draining", drain=reason, since_us=self._now_us)

    def fill(self, node: str) -> None:
        """It drains no more."""
        self.nodes[node] = replace(self.nodes[node], state="up", drain="", since_us=self._now_us)

    def lose(self, node: str) -> None:
        """Notes that a node's journal is lost, for ever."""
        entry, beat = self.nodes[node], self.beat_of(node)
        unflushed = entry.unflushed_records if beat is None else beat.report.unflushed_records
        self.nodes[node] = replace(entry, state="away", since_us=self._now_us, unflushed_records=unflushed)
        self.lose_journal(entry.journal)

    def lose_journal(self, journal: str) -> None:
        for name, topic in self.topics.items():
            if any(term.journal == journal and not term.lost for term in topic.terms):
                chain = tuple(_lost(term, journal) for term in topic.chain)
                self.topics[name] = replace(topic, chain=chain, to=topic.to and _lost(topic.to, journal))

    def remove(self, node: str) -> None:
        self.removed.pop(node, None)
        self.removed[node] = self.nodes.pop(node).journal

    # Topics.

    def places(self) -> dict[str, str]:
        """Where each topic is, or is to be."""
        return {name: (topic.to or topic.owner).node for name, topic in self.topics.items()}

    def report(self, name: str, term: TermEntry | None) -> TopicReport | None:
        """What the journal of that term says of the topic under it."""
        beat = self.beats.get(term.node) if term else None
        found = beat.report.topics.get(name) if term and beat and beat.journal == term.journal else None
        return found if term and found and found.term == term.term else None

    def claimed(self, name: str, term: TermEntry | None) -> bool:
        report = self.report(name, term)
        return report is not None and report.state != "waiting"

    def waiting(self, name: str) -> TopicReport | None:
        """What the owner waits for: another data directory has records that nobody may go past."""
        report = self.report(name, self.topics[name].owner)
        return report if report is not None and report.state == "waiting" else None

    def alike(self, name: str) -> str:
        """The topic whose name differs from this one only by case; empty where there is none."""
        if self._by_case is None:
            self._by_case = {known.lower(): known for known in self.topics}
        known = self._by_case.get(name.lower(), name)
        return known if known != name else ""

    def add(self, name: str, topic_id: str, node: str) -> None:
        if self._by_case is not None:
            self._by_case[name.lower()] = name
        self.topics[name] = TopicEntry(topic_id=topic_id, chain=(self._granted(node, 0),))

    def forget(self, name: str) -> None:
        self._by_case = None
        del self.topics[name]

    def give(self, name: str, node: str, floor: int = 0) -> None:
        """Makes `node` the owner under a term above all others, and above `floor`."""
        self.keep(name)
        topic = self.topics[name]
        self.topics[name] = replace(topic, chain=(*topic.chain, self._granted(node, floor)))

    def hand(self, name: str, node: str, floor: int = 0) -> None:
        """Has the owner hand over to `node`."""
        self.keep(name)
        self.topics[name] = replace(self.topics[name], to=self._granted(node, floor))

    def keep(self, name: str) -> None:
        """The owner stays. Who was to be it may have claimed all the same, so its term stays, too."""
        topic = self.topics[name]
        if topic.to is not None:
            self.topics[name] = replace(topic, chain=(*topic.chain[:-1], topic.to, topic.owner), to=None)

    def hand_over(self, name: str) -> None:
        """Makes the node that a topic was to be handed to its owner."""
        topic = self.topics[name]
        assert topic.to is not None
        self.topics[name] = replace(topic, chain=(*topic.chain, topic.to), to=None)

    def settle(self, name: str) -> None:
        """The owner needs no other journal: what lies below its term is not needed any more."""
        topic = self.topics[name]
        self.topics[name] = replace(topic, chain=tuple(term for term in topic.chain if term.term >= topic.owner.term))

    def abandon(self, name: str, term: int) -> None:
        """Whoever owns it next goes past what was acknowledged up to that term."""
        self.topics[name] = replace(self.topics[name], abandon=term)

    def _granted(self, node: str, floor: int) -> TermEntry:
        self._term = max(self._term, floor) + 1
        entry = self.nodes[node]
        return TermEntry(term=self._term, node=node, data_dir=entry.data_dir, journal=entry.journal)


def awaited_topics(view: ClusterView, beats: Mapping[str, Beat]) -> dict[str, list[str]]:
    """The topics that wait for records which one data directory alone has, by the ids of those, in order."""
    draft = Draft(view, beats, 0)
    found: dict[str, list[str]] = {}
    for name, topic in sorted(view.topics.items()):
        waiting = draft.waiting(name)
        awaited = topic.term(waiting.awaited) if waiting is not None else None
        if awaited is not None:
            found.setdefault(awaited.data_dir, []).append(name)
    return found


def _lost(term: TermEntry, journal: str) -> TermEntry:
    return replace(term, lost=True) if term.journal == journal else term


def _newest(values: dict[str, str], count: int) -> dict[str, str]:
    return dict(list(values.items())[-count:])
