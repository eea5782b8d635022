"""How nodes know each other over TLS: by which authorities' certificates, and which one they show themselves."""

import ssl
from pathlib import Path

from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError
from siltlog.infra.security.file_versions import are_settling, versions_of
from siltlog.infra.telemetry import Logger

HOST_MISMATCHES = frozenset((62, 64))
"""What OpenSSL says of a certificate that names other hosts, or other addresses."""


class PeerTls:
    """Used on one event loop. Connections that are open stay when files change."""

    def __init__(self, certificate: str, key: str, authorities: str, clock: Clock, logger: Logger) -> None:
        """Files in PEM, empty where there is none. Without `authorities` those count that this system trusts, and what
        the file of the own certificate has besides.

        Raises ConfigError that names the file and what is wrong with it.
        """
        self._certificate, self._key, self._authorities = certificate, key, authorities
        self._paths = [Path(name) for name in (certificate, key, authorities) if name]
        self._clock, self._logger = clock, logger
        self._state = versions_of(self._paths)
        self._context = self._loaded()
        self._told = ""
        """What was told of files that do not fit each other, while they do not."""

    def context(self) -> ssl.SSLContext:
        """Returns a context made of the files as they are, or as they were last when they do not fit each other."""
        state = versions_of(self._paths)
        if state != self._state or self._told:
            try:
                self._context = self._loaded()
            except ConfigError as error:
                # Files change one by one: the next connection tries again.
                self._tell(error.detail)
            else:
                self._state, self._told = state, ""
        return self._context

    def _tell(self, problem: str) -> None:
        if problem != self._told and not are_settling(self._paths, self._clock):
            self._logger.error("the changed files of TLS are not used for other nodes", reason=problem)
            self._told = problem

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.create_default_context() if not self._authorities else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authorities = self._authorities or self._certificate
        try:
            if authorities:
                context.load_verify_locations(authorities)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{authorities} has no certificates in PEM that can be read: {error}") from None
        try:
            if self._certificate:
                context.load_cert_chain(self._certificate, self._key or None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{self._certificate} and {self._key} are no certificate and its key: {error}") from None
        return context


def said_of(error: ssl.SSLCertVerificationError, host: str) -> str:
    """Says why a node's certificate is not taken, and what to do."""
    if error.verify_code in HOST_MISMATCHES:
        return (
            f"its certificate is not for {host}, the host of its SILT_ADVERTISE_URL: issue one for that host, or "
            "advertise one that it is for"
        )
    return (
        f"its certificate is not taken ({error.verify_message}): name the authority that signs those of the nodes by "
        "SILT_TLS_PEER_CA"
    )
