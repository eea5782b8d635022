"""Makes the first key of a cluster that no server runs for yet."""

import secrets

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError
from siltlog.infra.security.document import KeptKey
from siltlog.infra.security.documents import AccessDocuments
from siltlog.infra.security.keys import ApiKey, hash_of, make_key
from siltlog.infra.security.secret import PURPOSE_ACCESS, PURPOSE_KEYS
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.telemetry import Logger
from siltlog.server.access.changes import checked_name, with_key
from siltlog.server.access.security import open_secret


def first_key(settings: ServerSettings, store: ObjectStore, name: str, clock: Clock, logger: Logger) -> ApiKey:
    """Writes the first access document, with one key that administers everything.

    Raises ConfigError `key_exists` where there is a document already: who can write the root could make himself
    administrator.
    """
    checked_name(name)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    secret = open_secret(settings.data_dir, settings.secret_file, is_remote=bool(settings.root), logger=logger)
    seen_file = settings.data_dir / names.ACCESS_SEEN_FILE
    documents = AccessDocuments(store, cluster_id(store), secret.key(PURPOSE_ACCESS), seen_file, clock, logger)
    if documents.open().document.number:
        raise ConfigError(
            f"there is an access document in {store.uri(names.ACCESS_FOLDER)}: who administers it makes keys, and so "
            "does `silt access key create` as the user of the server, on its machine",
            error_code="key_exists",
        )
    key, now_us = make_key(secrets.token_bytes), clock.now_us()
    kept = KeptKey(name, hash_of(key, secret.key(PURPOSE_KEYS)), now_us)
    documents.write(with_key(key.key_id, kept, [("admin", "")], now_us), expected=0)
    return key
