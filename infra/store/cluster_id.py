"""The id of a root: what binds a data dir to the tables it writes."""

import uuid

from siltlog.infra import names
from siltlog.infra.errors import ConfigError
from siltlog.infra.store.once import put_once
from siltlog.infra.store.store import ObjectStore


def cluster_id(store: ObjectStore) -> str:
    """The root's id (a uuid), made by whoever comes first. Raises ConfigError when what is there is no id."""
    try:
        return _parsed(store)
    except FileNotFoundError:
        put_once(store, names.CLUSTER_ID_OBJECT, str(uuid.uuid4()).encode())
        return _parsed(store)


def _parsed(store: ObjectStore) -> str:
    content = store.get(names.CLUSTER_ID_OBJECT)
    try:
        return str(uuid.UUID(content.decode()))
    except ValueError:
        raise ConfigError(
            f"{store.uri(names.CLUSTER_ID_OBJECT)} is not a cluster id; restore it from a backup of the root"
        ) from None
