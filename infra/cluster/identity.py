"""The identity of a node, and how quickly it is taken for gone."""

from typing import NamedTuple

from siltlog.infra.cluster.view import FORMAT

LOOKS_A_LEASE = 5
LOOK_SECONDS_MAX = 1.0
RANK_SECONDS = 0.3
"""How much longer each member waits than the one before it, where all could write the next view."""
UNREADY_SECONDS = 30.0
LEASES_CUT_OFF = 2
"""How many leases a node that nobody reaches keeps its topics."""
LEASES_UNCLAIMED = 3
LIST_SECONDS = 60.0
OFFERED_SECONDS = 600.0
"""How long all members must have offered a format before views have it: until then any may go back a release."""


class Identity(NamedTuple):
    cluster_id: str
    node: str
    data_dir: str
    place: str
    url: str
    zone: str
    version: str
    journal_root: str = ""
    """Where its journals are, if not in the root; and the id of that place."""
    journal_root_id: str = ""
    formats: int = FORMAT
    """The highest format of views, beats and journals that this release reads and writes."""
    kafka: str = ""
    """Where Kafka's clients call it, as `host:port`; empty where it does not speak their protocol."""


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
