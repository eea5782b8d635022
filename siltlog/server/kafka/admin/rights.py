"""What somebody may do with something, as Kafka's clients are told: a bit for each of Kafka's operations."""

from collections.abc import Mapping

from siltlog.infra.security.access import CLUSTER, Kind, Right
from siltlog.infra.security.grant import Grant

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
DESCRIBE_CONFIGS, ALTER_CONFIGS = 10, 11
_OPERATIONS: Mapping[Kind, Mapping[Right, tuple[int, ...]]] = {
    "topic": {
        "read": (READ,),
        "write": (WRITE,),
        "create": (CREATE,),
        "delete": (DELETE,),
        "alter": (ALTER, ALTER_CONFIGS),
        "describe": (DESCRIBE, DESCRIBE_CONFIGS),
    },
    "group": {"read": (READ,), "delete": (DELETE,), "describe": (DESCRIBE,)},
    "cluster": {"describe": (DESCRIBE,), "alter": (ALTER,)},
}


def operations(grant: Grant, kind: Kind, name: str = CLUSTER) -> int:
    """The bits of the operations that are allowed."""
    return sum(
        1 << operation
        for right, allowed in _OPERATIONS[kind].items()
        if grant.may(right, kind, name)
        for operation in allowed
    )
