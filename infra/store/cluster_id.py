"""The id of a root: what binds a data dir to the tables it writes.

While nodes share the root a line after the id says so. Releases that know of no clusters take the whole object for the
id, and refuse to start on it: they look at nothing else there that could tell them.
"""

import uuid

from siltlog.infra import names
from siltlog.infra.errors import ConfigError
from siltlog.infra.store.once import put_once
from siltlog.infra.store.store import ObjectStore

SHARED_LINE = "\nNodes of a cluster share this root: only releases that know SILT_CLUSTER may start on it.\n"


def cluster_id(store: ObjectStore) -> str:
    """The root's id (a uuid), made by whoever comes first. Raises ConfigError when what is there is no id."""
    try:
        return _parsed(store)
    except FileNotFoundError:
        put_once(store, names.CLUSTER_ID_OBJECT, str(uuid.uuid4()).encode())
        return _parsed(store)


def journal_root_id(store: ObjectStore) -> str:
    """The id of a place of journals beside the root, made by whoever comes first. Raises Unavailable."""
    try:
        return store.get(names.JOURNAL_ROOT_ID_OBJECT).decode("utf-8", "replace")
    except FileNotFoundError:
        put_once(store, names.JOURNAL_ROOT_ID_OBJECT, str(uuid.uuid4()).encode())
        return store.get(names.JOURNAL_ROOT_ID_OBJECT).decode("utf-8", "replace")


def mark_shared(store: ObjectStore, shared: bool) -> None:
    """Says that nodes share the root, or do no more. Durable on return. Raises Unavailable."""
    content = (_parsed(store) + (SHARED_LINE if shared else "")).encode()
    if store.get(names.CLUSTER_ID_OBJECT) != content:
        store.put(names.CLUSTER_ID_OBJECT, content)
        store.sync([names.CLUSTER_ID_OBJECT])


def _parsed(store: ObjectStore) -> str:
    content = store.get(names.CLUSTER_ID_OBJECT)
    try:
        return str(uuid.UUID(content.decode().partition("\n")[0]))
    except ValueError:
        raise ConfigError(
            f"{store.uri(names.CLUSTER_ID_OBJECT)} is not a cluster id; restore it from a backup of the root"
        ) from None
