"""The keys of Redis: one hash tag per group, so that one Lua script may touch all of a group's keys.

A name here outlives every process that uses it. Changing one needs a migration.
"""


def group_key(group: str, part: str) -> str:
    return f"silt:{{{group}}}:{part}"


GROUP_PARTS = (
    "state",  # hash: generation, revision, stale, run_id, hold, lost, regained, forgotten, created, emptied, urgent,
    # clock, log, and of each log restored/{cluster id}, keeper/{cluster id}, view/{cluster id}; of a classic group
    # type, phase, joined, deadline, extends, protocol_type, protocol, leader, summary (msgpack)
    "members",  # hash: member -> subscription, timeouts, reset policy, instance id (msgpack)
    "sessions",  # sorted set: member -> end of its session, Redis ms
    "held",  # hash: member -> the partitions it holds and since when (msgpack)
    "owners",  # hash: partition -> the member that holds it
    "moves",  # hash: partition -> the member that gets it once its holder let go ("" for nobody)
    "revoked",  # sorted set: partition -> until when its holder must let go, Redis ms
    "topics",  # hash: topic -> partitions it had when the group first saw it
    "offsets",  # hash: partition -> committed offset, version, metadata, Redis ms, leader epoch if any (msgpack)
    "refused",  # sorted set: member that left, expired or was fenced -> until when it is refused, Redis ms
    "instances",  # hash: instance id -> the member that has it
    "attempts",  # hash: partition -> what is known of handling records that the group has not passed (msgpack)
    "unsaved",  # hash: partition whose offset `_offsets` is yet to have -> 1 when nobody may be told before, 0
    "protocols",  # hash: member of a classic group -> what it sent with each protocol (msgpack)
    "assignments",  # hash: member of a classic group -> what its leader gave it, and the partitions in that (msgpack)
    "arrived",  # set: members of a classic group that have joined, or synced, in this phase
)
"""The keys of a group, in the order in which scripts take them. A partition is `{topic}/{topic id}/{partition}`."""

GROUPS_KEY = "silt:groups"
"""Sorted set of every group, all with score 0."""


def restored_key(cluster_id: str) -> str:
    """A hash with the `epoch` of the keeper of `_offsets` that has restored all groups since Redis was emptied or was
    another process, and with the `run_id` of that process."""
    return f"silt:keeper:{cluster_id}"


def redis_key(cluster_id: str) -> str:
    """A hash with a random `value`, by which nodes of a cluster know that they have the same Redis."""
    return f"silt:cluster:{cluster_id}"


def keeper_text(epoch: int) -> str:
    """An epoch of `_offsets` as the scripts compare it."""
    return f"{epoch:020d}"
