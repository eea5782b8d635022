"""Where nodes are called: an address counts only as a node that has the cluster's secret said it. Pure.

Whoever writes the root can write beats and views. What he cannot do is have other nodes, or clients, call an address of
his own: they would send him records, and clients their tokens.
"""

import hmac
from hashlib import blake2b

from siltlog.infra.cluster.router import Member
from siltlog.infra.cluster.view import NodeEntry

_PROOF_BYTES = 32


class Addresses:
    """Used on one event loop."""

    def __init__(self, key: bytes = b"", cluster_id: str = "") -> None:
        """Without a `key` nothing is proven, and every address counts."""
        self._key = key
        self._cluster_id = cluster_id
        self._looked_at: dict[str, tuple[NodeEntry, bool]] = {}

    def proof(self, node: str, journal: str, url: str) -> str:
        """Says that a node is called there for as long as this is its journal."""
        if not self._key:
            return ""
        said = b"".join(
            len(part).to_bytes(4) + part
            for part in (text.encode() for text in ("address", self._cluster_id, node, journal, url))
        )
        return blake2b(said, key=self._key, digest_size=_PROOF_BYTES).hexdigest()

    def counts(self, node: str, entry: NodeEntry) -> bool:
        """Whether it may be called, and told, where this entry of a view says."""
        if not self._key:
            return True
        looked_at = self._looked_at.get(node)
        if looked_at is None or looked_at[0] is not entry:
            proof = self.proof(node, entry.journal, entry.url)
            looked_at = self._looked_at[node] = (entry, hmac.compare_digest(proof.encode(), entry.proof.encode()))
        return looked_at[1]

    def member(self, node: str, entry: NodeEntry) -> Member | None:
        """The node as it is called; None where it may not be."""
        return Member(node, entry.journal, entry.url) if self.counts(node, entry) else None
