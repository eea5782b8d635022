"""Where nodes are called: an address counts only as a node that has the cluster's secret said it. Pure.

Whoever writes the root can write beats and views. What he cannot do is have other nodes, or clients, call an address of
his own: they would send him records, and clients their tokens.
"""

import hmac
from hashlib import blake2b

from siltlog.infra.cluster.beat import Beat
from siltlog.infra.cluster.router import Member
from siltlog.infra.cluster.view import ClusterView, NodeEntry

_PROOF_BYTES = 32


class Addresses:
    """Used on one event loop."""

    def __init__(self, key: bytes = b"", cluster_id: str = "") -> None:
        """Proves nothing without a `key`: every address counts then."""
        self._key = key
        self._cluster_id = cluster_id
        self._looked_at: dict[str, tuple[NodeEntry, bool]] = {}
        self._looked_at_kafka: dict[str, tuple[NodeEntry, bool]] = {}

    def proof(self, node: str, journal: str, url: str) -> str:
        """Says that a node is called there for as long as this is its journal."""
        if not self._key:
            return ""
        said = b"".join(
            len(part).to_bytes(4) + part
            for part in (text.encode() for text in ("address", self._cluster_id, node, journal, url))
        )
        return blake2b(said, key=self._key, digest_size=_PROOF_BYTES).hexdigest()

    def kafka_proof(self, node: str, journal: str, address: str) -> str:
        """Says the same of the address for Kafka's clients; it is no proof of a URL."""
        return self.proof(node, journal, f"kafka://{address}")

    def counts(self, node: str, entry: NodeEntry) -> bool:
        """Whether it may be called, and told, where this entry of a view says."""
        if not self._key:
            return True
        looked_at = self._looked_at.get(node)
        if looked_at is None or looked_at[0] is not entry:
            looked_at = self._looked_at[node] = (entry, self._proves(node, entry))
        return looked_at[1]

    def kafka(self, node: str, entry: NodeEntry) -> str:
        """Where Kafka's clients may be told to call it; empty for nowhere: they would show their keys to whoever
        listens there."""
        if not self._key or not entry.kafka:
            return entry.kafka
        looked_at = self._looked_at_kafka.get(node)
        if looked_at is None or looked_at[0] is not entry:
            proof = self.kafka_proof(node, entry.journal, entry.kafka)
            looked_at = self._looked_at_kafka[node] = (entry, _same(proof, entry.kafka_proof))
        return entry.kafka if looked_at[1] else ""

    def lacks(self, entry: NodeEntry) -> bool:
        """Whether a node proves who it is by a secret, and this one has none: it refuses what this node asks of it."""
        return not self._key and bool(entry.proof)

    def says(self, beat: Beat) -> bool:
        """Whether a node that has this one's secret sends this beat."""
        return bool(self._key) and self._proves(beat.node, beat)

    def strangers(self, node: str, view: ClusterView) -> set[str]:
        """The members of a view to which `node` comes that it may not come to while they live: they prove who they are
        by a secret that it does not have, and no node of the view had this one's.

        A secret that one of them had, this node before among them, is the cluster's as much as the controller's. It is
        the controller who counts; where that was this node, or has gone, nobody can say yet which of the others it is.
        """
        if self._key and any(self.counts(*each) for each in view.nodes.items()):
            return set()
        members = dict(view.members())
        leads = view.controller != node and view.listed(view.controller, view.journal)
        asked = {view.controller} if leads else members.keys() - {node}
        return {name for name in asked if members[name].proof}

    def _proves(self, node: str, said: NodeEntry | Beat) -> bool:
        return _same(self.proof(node, said.journal, said.url), said.proof)

    def member(self, node: str, entry: NodeEntry) -> Member | None:
        """The node as it is called; None where it may not be."""
        return Member(node, entry.journal, entry.url) if self.counts(node, entry) else None


def _same(proof: str, given: str) -> bool:
    return hmac.compare_digest(proof.encode(), given.encode())
