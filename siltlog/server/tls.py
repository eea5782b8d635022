"""The certificate by which the server is known: looked at while it runs, and replaced without a connection lost."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.errors import ConfigError
from siltlog.infra.security.certificates import (
    ClientCertificate,
    Identity,
    TlsFiles,
    load_identity,
    load_identity_with,
)
from siltlog.infra.security.file_versions import Version, are_settling, versions_of
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.telemetry import Logger

LOOK_SECONDS = 10.0
_OF_CLIENTS = slice(2, None)
"""Where the files of clients are among those of TLS: behind certificate and key."""
Withdraw = Callable[[Callable[[ClientCertificate], bool]], int]
"""Closes the connections of the certificates for which it is true; their number."""


def tls_files(settings: ServerSettings) -> TlsFiles | None:
    """None where the server speaks no TLS. Raises ConfigError for settings that do nothing together."""
    given = {
        "SILT_TLS_CERT": settings.tls_cert,
        "SILT_TLS_KEY": settings.tls_key,
        "SILT_TLS_CLIENT_CA": settings.tls_client_ca,
        "SILT_TLS_CRL": settings.tls_crl,
    }
    if not settings.tls_cert or not settings.tls_key:
        named = [name for name, value in given.items() if value]
        if settings.tls_client != "off":
            named.append(f"SILT_TLS_CLIENT={settings.tls_client}")
        if not named:
            return None
        raise ConfigError(f"{named[0]} does nothing by itself: TLS needs SILT_TLS_CERT and SILT_TLS_KEY, both")
    if settings.tls_client != "off" and not settings.tls_client_ca:
        raise ConfigError(
            f"SILT_TLS_CLIENT={settings.tls_client} needs SILT_TLS_CLIENT_CA, the authorities of those certificates"
        )
    if settings.tls_client == "off" and (settings.tls_client_ca or settings.tls_crl):
        idle = "SILT_TLS_CLIENT_CA" if settings.tls_client_ca else "SILT_TLS_CRL"
        raise ConfigError(f"{idle} does nothing while SILT_TLS_CLIENT is off: set it to optional or required")
    return TlsFiles(
        certificate=Path(settings.tls_cert),
        key=Path(settings.tls_key),
        minimum=settings.tls_min,
        clients=settings.tls_client,
        client_ca=Path(settings.tls_client_ca) if settings.tls_client_ca else None,
        revoked=Path(settings.tls_crl) if settings.tls_crl else None,
        h2=bool(settings.grpc_listen),
    )


class Tls:
    """Holds the identity that new connections get: the last one that could shake hands."""

    def __init__(self, files: TlsFiles, clock: Clock, logger: Logger) -> None:
        """Raises ConfigError that names the file and what is wrong with it."""
        self._files = files
        self._clock = clock
        self._logger = logger
        self._state = versions_of(files.paths)
        self._identity = load_identity(files)
        self._problem = ""
        """Why files that changed are not used, once it is told."""
        self._looking = asyncio.Lock()
        self._asked = asyncio.Event()

    @property
    def context(self) -> ssl.SSLContext:
        return self._identity.context

    @property
    def h2_context(self) -> ssl.SSLContext:
        """The context of connections that speak gRPC."""
        context = self._identity.h2
        assert context is not None, "gRPC is spoken where its context was asked for"
        return context

    @property
    def not_after(self) -> datetime:
        return self._identity.not_after

    async def reload(self) -> str:
        """Reads the files again, whether or not they seem to be others. Gives why they are not used; empty where they
        are."""
        await self.look(asked=True)
        self._asked.set()
        return self._problem

    async def watch(self, withdraw: Withdraw) -> None:
        """Takes what changed in the files; runs until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), LOOK_SECONDS)
            self._asked.clear()
            try:
                await self.look()
                self._end_certificates(withdraw)
            except Exception:
                # Whatever it was, the next look must come.
                self._logger.exception("looking after the certificate failed")

    async def look(self, asked: bool = False) -> None:
        """Reads files that changed. What does not fit while they are being replaced is told to who asked alone."""
        async with self._looking:
            await self._read(asked)

    async def _read(self, asked: bool) -> None:
        # What failed is tried again: files change one by one, and rights without a trace in them.
        state = versions_of(self._files.paths)
        if state == self._state and not asked and not self._problem:
            return
        try:
            identity = await asyncio.to_thread(load_identity, self._files)
            self._check_time(identity)
        except ConfigError as error:
            reason = error.detail
            if self._files.client_ca is not None and (asked or state[_OF_CLIENTS] != self._state[_OF_CLIENTS]):
                reason = await self._read_of_clients(state, reason)
            if asked or (reason != self._problem and not are_settling(self._files.paths, self._clock)):
                self._logger.error("the changed certificate is not used, the one before is", reason=reason)
                self._problem = reason
            return
        self._state, self._identity, self._problem = state, identity, ""
        self._logger.info("the files of TLS were read again", not_after=identity.not_after.isoformat())

    async def _read_of_clients(self, state: tuple[Version | None, ...], reason: str) -> str:
        """Takes whose certificates count, and which do no more, for the certificate in use: another that cannot be used
        for that `reason` must keep nobody in. Gives all that is wrong."""
        try:
            identity = await asyncio.to_thread(load_identity_with, self._identity.pair, self._files)
        except ConfigError as error:
            return reason if error.detail == reason else f"{reason}; {error.detail}"
        self._state = (*self._state[: _OF_CLIENTS.start], *state[_OF_CLIENTS])
        self._identity = identity
        self._logger.info("the files of clients' certificates were read again, for the certificate before")
        return reason

    def _check_time(self, identity: Identity) -> None:
        """Raises ConfigError for a certificate that no client takes now, where they take the one in use."""
        now = self._now()
        if self._identity.is_valid(now) and not identity.is_valid(now):
            what = "ended at" if identity.not_after <= now else "does not count before"
            when = identity.not_after if identity.not_after <= now else identity.not_before
            raise ConfigError(f"the certificate in {self._files.certificate} {what} {when.isoformat()}")

    def _end_certificates(self, withdraw: Withdraw) -> None:
        now, identity = self._now(), self._identity
        ended = withdraw(lambda certificate: certificate.not_after <= now or identity.has_withdrawn(certificate))
        if ended:
            self._logger.warning(
                "connections of certificates that were revoked, have ended or may be of an authority that is gone were "
                "closed",
                count=ended,
            )

    def warnings(self) -> list[str]:
        now = self._now()
        found = []
        if self._problem:
            found.append(f"tls: the changed certificate is not used, the one before is: {self._problem}")
        if self._identity.not_after <= now:
            found.append(f"tls: the certificate ended at {self._identity.not_after.isoformat()}")
        due = self._identity.revoked.until
        if due is not None and due <= now:
            found.append(f"tls: no certificate of a client is taken: SILT_TLS_CRL was due anew at {due.isoformat()}")
        return found

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_us() / MICROS_PER_SECOND, UTC)
