"""Who a node is, and how quickly it is taken for gone."""

from typing import NamedTuple

LOOKS_A_LEASE = 5
LOOK_SECONDS_MAX = 1.0
RANK_SECONDS = 0.3
"""By how much each member waits longer than the one before it, where all could write the next view."""
UNREADY_SECONDS = 30.0
LEASES_UNCLAIMED = 3
LIST_SECONDS = 60.0


class Identity(NamedTuple):
    cluster_id: str
    node: str
    data_dir: str
    place: str
    url: str
    zone: str
    version: str


class Timing(NamedTuple):
    lease_ms: int = 5_000
    heartbeat_ms: int = 1_500

    @property
    def lease_s(self) -> float:
        return self.lease_ms / 1000

    @property
    def heartbeat_s(self) -> float:
        return self.heartbeat_ms / 1000

    @property
    def look_s(self) -> float:
        """How long a node waits between two looks."""
        return min(LOOK_SECONDS_MAX, self.lease_s / LOOKS_A_LEASE)
