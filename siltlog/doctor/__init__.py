"""Finds what keeps a log from working on this machine, and says what mends it (`silt doctor`).

Each check looks at the real thing: it writes, syncs, asks. It leaves nothing behind and changes nothing.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from siltlog.doctor.credentials import check_own_certificate, check_secrets
from siltlog.doctor.finding import Finding
from siltlog.doctor.machine import data_dir, kafka_codec, open_files, program
from siltlog.doctor.server import check_server
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError

if TYPE_CHECKING:
    from siltlog.infra.settings.settings import ServerSettings

CLIENT_ONLY = Finding(
    "machine", "ok", "only the client is installed: what a server would need here comes with siltlog[server]"
)


def examine(
    settings: "ServerSettings | None", url: str, clock: Clock, credentials: Credentials | None = None
) -> Iterator[Finding]:
    """Every check in turn, for a server started here with `settings` and for the one at `url`.

    Without settings, where no server is installed, only the latter.
    """
    yield program()
    if settings is None:
        yield CLIENT_ONLY
    else:
        yield from _own_server(settings, clock)
    given = credentials or Credentials()
    yield from check_secrets(settings, url, given)
    yield from check_server(settings, url, clock, given)


def _own_server(settings: "ServerSettings", clock: Clock) -> Iterator[Finding]:
    from siltlog.doctor.services import coordinator, identity_provider, object_store
    from siltlog.doctor.spark import check_spark
    from siltlog.infra.settings.fit import check_node

    try:
        check_node(settings)
    except ValueError as error:
        yield Finding("settings", "wrong", str(error), "silt config check")
    yield from data_dir(settings, clock)
    yield open_files(settings)
    if settings.kafka_listen:
        yield kafka_codec()
    yield from check_own_certificate(settings, clock)
    yield _guarded("redis", lambda: coordinator(settings, clock))
    yield _guarded("object store", lambda: object_store(settings, clock))
    if settings.journal_root_uri != settings.root_uri:
        yield _guarded("journals", lambda: object_store(settings, clock, journals=True))
    if settings.oidc_issuer:
        yield _guarded("identity provider", lambda: identity_provider(settings))
    yield _guarded("spark", lambda: check_spark(settings))


def _guarded(check: str, examined: Callable[[], Finding]) -> Finding:
    try:
        return examined()
    except SiltlogError as error:
        return Finding(check, "wrong", error.detail)
