"""The result of one run on three nodes: plain data, printed by `summary` and as JSON."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from siltlog.demo.result import Check, Checked, Quantiles


@dataclass(frozen=True, slots=True)
class Loss:
    """A node killed with SIGKILL while records were on their way, and its disk removed. Times are monotonic seconds."""

    node: str
    was: str
    """why it was chosen: "owner" or "controller" """
    owned: tuple[str, ...]
    """its topics"""
    acknowledged: int
    """records acknowledged at that moment, at any node"""
    unanswered: int
    """records sent and not yet acknowledged"""
    began: float
    ended: float
    """when records that were sent after the kill had been acknowledged in every topic"""
    taken_by: dict[str, str]
    """topic -> the node that owned it afterwards"""
    controller: str
    """the controller afterwards"""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(slots=True)
class ClusterResult(Checked):
    records: int
    topics: dict[str, int]
    """topic -> how many flights it is to have"""
    urls: list[str]
    data_dir: Path
    published: int = 0
    acknowledged: int = 0
    read: int = 0
    """distinct (topic, partition, offset) that the group read"""
    repeated: int = 0
    """deliveries of a record that had been read before: a group delivers at least once"""
    rows: int = 0
    """in the Delta tables"""
    members: dict[str, int] = field(default_factory=dict)
    ack_ms: Quantiles = field(default_factory=lambda: Quantiles.of(()))
    losses: list[Loss] = field(default_factory=list)
    waits_s: list[dict[str, float]] = field(default_factory=list)
    """of each loss: topic -> the longest that a single publish waited for its ack across it"""
    replaced: tuple[str, ...] = ()
    """nodes that came back on empty disks"""
    replaced_s: float = 0.0
    """from their start until the view had all of them"""
    owners: dict[str, list[str]] = field(default_factory=dict)
    """node -> the topics that it owns at the end"""
    checks: list[Check] = field(default_factory=list)
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """Gives the result as a document for JSON."""
        losses = [
            {
                "node": loss.node,
                "was": loss.was,
                "owned": list(loss.owned),
                "acknowledged": loss.acknowledged,
                "unanswered": loss.unanswered,
                "seconds": loss.seconds,
                "taken_by": loss.taken_by,
                "controller": loss.controller,
                "waits_s": waits,
            }
            for loss, waits in zip(self.losses, self.waits_s, strict=True)
        ]
        document = {**asdict(self), "data_dir": str(self.data_dir), "ok": self.ok, "losses": losses}
        del document["waits_s"]
        return document
