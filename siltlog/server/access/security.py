"""What a node has where authentication is on: opened together, as its settings say."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from siltlog.infra import names
from siltlog.infra.http.part import Part
from siltlog.infra.node import Node
from siltlog.infra.security.callers.api_keys import ApiKeys
from siltlog.infra.security.callers.code_flow import CodeFlow
from siltlog.infra.security.callers.identification import Identification, Verifier
from siltlog.infra.security.callers.provider import Provider
from siltlog.infra.security.callers.sessions import PURPOSE as SESSIONS_PURPOSE
from siltlog.infra.security.callers.sessions import Sessions
from siltlog.infra.security.documents import AccessDocuments
from siltlog.infra.security.grant import Caller, Identity
from siltlog.infra.security.secret import PURPOSE_ACCESS, PURPOSE_KEYS, Secret, make_secret, read_secret
from siltlog.infra.telemetry import Logger
from siltlog.server.access.book import AccessBook, Tell
from siltlog.server.access.changes import without_administrator
from siltlog.server.access.ended import Ended, SessionEnds
from siltlog.server.access.held import HeldRevocations
from siltlog.server.access.trust import check_unused, open_trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What a node has where authentication is on."""

    secret: Secret
    book: AccessBook
    identification: Identification
    part: Part
    ends: SessionEnds
    flow: CodeFlow | None
    provider: Provider | None = None

    async def logged_in(self, caller: Caller, token: str) -> Identity:
        """Tells who logs in with a token. Raises SiltlogError, as for one in the header Authorization."""
        stale = self.book.stale()
        if stale is not None:
            raise stale
        found = self.identification.verified(caller, token)
        return found if isinstance(found, Identity) else await found

    def warnings(self) -> list[str]:
        """Sentences about what is wrong, for who looks whether the server is well."""
        return [*self.book.warnings(), *(self.provider.warnings() if self.provider else ())]


async def open_security(node: Node, tell: Tell, tell_ended: Callable[[Ended], None]) -> Security | None:
    """Opens the secret and the access document; None where authentication is off. Raises ConfigError, Unavailable.

    `tell` hears of what is changed here, `tell_ended` of sessions that were ended.
    """
    settings = node.settings
    if settings.auth == "off":
        check_unused(settings)
        return None
    secret = open_secret(settings.data_dir, settings.secret_file, is_remote=bool(settings.root), logger=node.logger)
    documents = AccessDocuments(
        node.store,
        node.cluster_id,
        secret.key(PURPOSE_ACCESS),
        settings.data_dir / names.ACCESS_SEEN_FILE,
        node.clock,
        node.logger,
    )
    await asyncio.to_thread(documents.open)
    if without_administrator(documents.current.document, (), node.clock.now_us()):
        node.logger.warning(
            "nobody administers access: there is no key with the role admin that counts, and no other administrator"
        )
    keys = ApiKeys(secret.key(PURPOSE_KEYS), node.clock)
    trust = open_trust(settings, lambda: book.access.look_again(), node.clock, node.logger)
    provider = trust.provider
    verifiers: tuple[Verifier, ...] = (keys,) if provider is None else (keys, provider)
    ends = SessionEnds(
        settings.data_dir / names.SESSIONS_ENDED_FILE,
        lambda: book.document,
        lambda: book.access.ask_again(),
        tell_ended,
        node.clock,
        node.logger,
    )
    book = AccessBook(
        documents,
        HeldRevocations(settings.data_dir / names.ACCESS_HELD_FILE),
        keys,
        verifiers,
        clock=node.clock,
        logger=node.logger,
        stale_ms=settings.access_stale_ms,
        tell=tell,
        ends=ends,
    )
    sessions = None
    if settings.ui != "off":
        key = secret.key(f"{SESSIONS_PURPOSE} {node.cluster_id}")
        sessions = Sessions(key, book.access.check, node.clock, only_shows=settings.ui == "read")
    identification = Identification(
        book.access,
        verifiers,
        node.clock,
        certificates=trust.certificates,
        stale=book.stale,
        sessions=sessions,
    )
    return Security(
        secret=secret,
        book=book,
        identification=identification,
        part=_part(book, provider),
        ends=ends,
        flow=trust.flow,
        provider=provider,
    )


def _part(book: AccessBook, provider: Provider | None) -> Part:
    if provider is None:
        return Part(start=book.start, drain=book.stop, close=book.close)

    def start() -> None:
        book.start()
        provider.start()

    async def close(patient: bool) -> bool:
        provider.stop()
        return await book.close(patient)

    return Part(start=start, drain=book.stop, close=close)


def open_secret(data_dir: Path, secret_file: str, *, is_remote: bool, logger: Logger) -> Secret:
    """Reads the cluster's secret, which is made where no file was named and there is none. Raises ConfigError."""
    if secret_file:
        return read_secret(Path(secret_file))
    path = data_dir / names.SECRET_FILE
    if make_secret(path) and is_remote:
        logger.warning(
            "the secret of this cluster was made: keep a copy of it, for without it no key and no grant in the root "
            "counts, and every other node needs it (SILT_SECRET_FILE)",
            path=str(path),
        )
    return read_secret(path)
