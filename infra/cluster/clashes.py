"""Why a node may not come to a cluster, or stay in it: another is in its place, or has other settings."""

from siltlog.infra import names
from siltlog.infra.cluster.beat import Beat
from siltlog.infra.cluster.identity import Identity
from siltlog.infra.cluster.view import ClusterView, NodeEntry
from siltlog.infra.errors import ConfigError


def elsewhere(mine: Identity, view: ClusterView) -> ConfigError:
    """Says that the cluster has its journals in another place."""
    theirs, ours = (
        f"{place or 'the root'} ({place_id or 'its own'})"
        for place, place_id in ((view.journal_root, view.journal_root_id), (mine.journal_root, mine.journal_root_id))
    )
    return ConfigError(
        f"the journals of this cluster are in {theirs}, and node {mine.node} has them in {ours}: set SILT_JOURNAL_ROOT "
        "to the same place on all nodes"
    )


def rival(mine: Identity, beat: Beat) -> ConfigError:
    """Says that the process which sends this beat is this node, too, or has a copy of its data directory."""
    if beat.data_dir == mine.data_dir:
        return ConfigError(
            f"this data directory is a copy of that of node {beat.node}, which is up at {beat.url}: give this node "
            "another one, or stop that node"
        )
    return ConfigError(
        f"node {beat.node} is up at {beat.url}, with another data directory: set SILT_NODE_ID to another name, or stop "
        "that node"
    )


def stranger(mine: Identity, beat: Beat) -> ConfigError:
    """Says that the node which sends this beat, and is of the cluster, has another secret."""
    return ConfigError(
        f"node {mine.node} does not have the secret of node {beat.node}, which is up at {beat.url}, nor of any other "
        "node of this cluster: none would call it, nor it any of them. Set SILT_SECRET_FILE to a copy of one secret on "
        "all nodes"
    )


def succeeded(mine: Identity, entry: NodeEntry) -> ConfigError:
    """Says that a view has another process as this node."""
    return ConfigError(
        f"another process has come as node {mine.node}, at {entry.url}: this one stops. Give each node a data "
        "directory and a SILT_NODE_ID of its own"
    )


def dissolved(view: ClusterView) -> ConfigError:
    """Says that the cluster is no more."""
    return ConfigError(
        f"this cluster was dissolved by {names.view_object(view.number)}: start one server with SILT_CLUSTER=off, or "
        "the nodes again"
    )
