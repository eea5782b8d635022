"""The files of TLS: certificates, their key, whose clients are let in. Each look gives a context that was tried.

A certificate is never loaded into a context that is in use: with a key that does not fit it could shake no hands any
more. A new context is made, shakes hands with itself in memory, and only then takes the old one's place.
"""

import os
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from cryptography import x509

from siltlog.infra.clock import MICROS_PER_SECOND, Clock, SystemClock
from siltlog.infra.errors import ConfigError

Clients = Literal["off", "optional", "required"]
_MODES = {"off": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The ciphers of TLS 1.2 that have forward secrecy and authenticated encryption. TLS 1.3 has no others."""
_SELF_TURNS_MAX = 10
_LIST = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----\s*", re.DOTALL)
_AUTHORITY = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.+?)-----END", re.DOTALL)
Authorities = frozenset[bytes]
"""Certificates of authorities, each as it is written in PEM, without white space."""


class ServerSide(ssl.SSLObject):
    """The server's end of a connection.

    A session of TLS 1.2 may be taken up again, and OpenSSL does not verify its certificate once more. What was taken
    back since makes another context, which knows no session of this one; whose time is over is refused here.
    """

    def do_handshake(self) -> None:
        super().do_handshake()
        if not self.session_reused:
            return
        shown, context = self.getpeercert(True), self.context
        assert isinstance(context, ServerContext)
        if shown and not context.is_in_time(x509.load_der_x509_certificate(shown)):
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "the certificate of the session that was taken up again has ended")


class ServerContext(ssl.SSLContext):
    """A context that knows whose certificates it lets in."""

    sslobject_class = ServerSide
    authorities: Authorities = frozenset()
    revoked_until: datetime | None = None
    """When the list that it has of revoked certificates is due anew."""
    clock: Clock = SystemClock()

    def is_in_time(self, certificate: x509.Certificate) -> bool:
        now = datetime.fromtimestamp(self.clock.now_us() / MICROS_PER_SECOND, UTC)
        return now < certificate.not_valid_after_utc and (self.revoked_until is None or now < self.revoked_until)


class TlsFiles(NamedTuple):
    """What the settings name. `client_ca` and `revoked` are None where there are none."""

    certificate: Path
    key: Path
    minimum: Literal["1.2", "1.3"] = "1.3"
    clients: Clients = "off"
    client_ca: Path | None = None
    revoked: Path | None = None
    h2: bool = False
    """Whether gRPC is spoken too: its clients ask for HTTP/2 while they shake hands."""

    @property
    def paths(self) -> Sequence[Path]:
        return [path for path in (self.certificate, self.key, self.client_ca, self.revoked) if path is not None]


class ClientCertificate(NamedTuple):
    """What a client's certificate says that was verified in the handshake. `issuer` is a name in DER.

    `authorities` are those of which it could be then: which of them it was of is not told.
    """

    uris: tuple[str, ...]
    dns: tuple[str, ...]
    issuer: bytes
    serial: int
    not_after: datetime
    authorities: Authorities = frozenset()


def client_certificate(der: bytes, context: ssl.SSLContext) -> ClientCertificate:
    """Reads what a client has shown in a handshake with `context`."""
    certificate = x509.load_der_x509_certificate(der)
    uris: list[str] = []
    dns: list[str] = []
    with suppress(x509.ExtensionNotFound):
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        dns = names.get_values_for_type(x509.DNSName)
    issuer = certificate.issuer.public_bytes()
    authorities = context.authorities if isinstance(context, ServerContext) else frozenset()
    return ClientCertificate(
        tuple(uris), tuple(dns), issuer, certificate.serial_number, certificate.not_valid_after_utc, authorities
    )


class Revoked(NamedTuple):
    """Certificates that their authorities took back: (issuer, serial number).

    `until` is when a list's successor is due; from then on no certificate of that authority is taken.
    """

    serials: frozenset[tuple[bytes, int]] = frozenset()
    until: datetime | None = None

    def has(self, certificate: ClientCertificate) -> bool:
        return (certificate.issuer, certificate.serial) in self.serials


class Pair(NamedTuple):
    """A certificate, with those behind it, and its key: what was in their files. Nothing prints them."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Pair(***)"


class Identity(NamedTuple):
    """A context that can shake hands, from when to when its certificate is valid, and whose of its clients no more are.

    `h2` is one for gRPC; None where that is not spoken.
    """

    context: ServerContext
    not_before: datetime
    not_after: datetime
    pair: Pair
    revoked: Revoked = Revoked()
    h2: ServerContext | None = None

    def is_valid(self, now: datetime) -> bool:
        """Whether clients take its certificate now, as far as its time goes."""
        return self.not_before <= now < self.not_after

    def has_withdrawn(self, certificate: ClientCertificate) -> bool:
        """Whether a client's certificate was taken back since it shook hands, or may have been of an authority that
        counts no more."""
        return self.revoked.has(certificate) or not certificate.authorities <= self.context.authorities


def load_identity(files: TlsFiles) -> Identity:
    """Reads the files anew. Raises ConfigError that names the file and what is wrong with it."""
    certificate = _certificate(files.certificate)
    pair = Pair(_readable(files.certificate), _readable(files.key))
    context, revoked = _context(files, "http/1.1")
    h2 = _context(files, "h2")[0] if files.h2 else None
    return Identity(context, certificate.not_valid_before_utc, certificate.not_valid_after_utc, pair, revoked, h2)


def load_identity_with(pair: Pair, files: TlsFiles) -> Identity:
    """Reads the files anew that are of clients, for a certificate and key as they were. Raises ConfigError."""
    try:
        with _in_memory(pair.certificate) as certificate, _in_memory(pair.key) as key:
            return load_identity(files._replace(certificate=certificate, key=key))
    except OSError as error:
        raise ConfigError(f"the certificate in use cannot be kept for other clients: {error.strerror}") from error


@contextmanager
def _in_memory(content: bytes) -> Iterator[Path]:
    """A file on no disk, for as long as the block: a context takes a key from a file alone."""
    with os.fdopen(os.memfd_create("pem"), "wb") as file:
        file.write(content)
        file.flush()
        yield Path(f"/proc/self/fd/{file.fileno()}")


def _context(files: TlsFiles, protocol: str) -> tuple[ServerContext, Revoked]:
    """A context for connections that speak `protocol`, which was tried out."""
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[files.minimum]
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols([protocol])
    _readable(files.key)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                f"the key in {files.key} is not that of the certificate in {files.certificate}"
            ) from error
        raise ConfigError(f"{files.key} is not the key of a certificate in PEM: {_reason(error)}") from error
    revoked = Revoked()
    if files.client_ca is not None:
        content = _load_authorities(context, files.client_ca, "certificates of authorities")
        context.authorities = frozenset(b"".join(body.split()) for body in _AUTHORITY.findall(content))
        context.verify_mode = _MODES[files.clients]
        # A session that is taken up again would not be asked for its certificate, nor held against the list. TLS 1.2
        # has other tickets, which cannot be kept back: see ServerSide.
        context.num_tickets = 0
        if files.revoked is not None:
            _load_authorities(context, files.revoked, "a list of revoked certificates")
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
            revoked = _revoked(files.revoked)
            context.revoked_until = revoked.until
    _try_out(context, files)
    return context, revoked


def _certificate(path: Path) -> x509.Certificate:
    try:
        chain = x509.load_pem_x509_certificates(_readable(path))
    except ValueError as error:
        raise ConfigError(f"{path} holds no certificate in PEM: {error}") from error
    return chain[0]


def _revoked(path: Path) -> Revoked:
    """Reads a file that OpenSSL has taken already."""
    serials: set[tuple[bytes, int]] = set()
    dues: list[datetime] = []
    for block in _LIST.findall(_readable(path)):
        found = x509.load_pem_x509_crl(block)
        issuer = found.issuer.public_bytes()
        serials.update((issuer, one.serial_number) for one in found)
        if found.next_update_utc is not None:
            dues.append(found.next_update_utc)
    return Revoked(frozenset(serials), min(dues, default=None))


def _readable(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    raise ConfigError("the key of SILT_TLS_KEY is encrypted; give it without a password, readable by the server alone")


def _load_authorities(context: ssl.SSLContext, path: Path, what: str) -> bytes:
    """Gives what is in the file."""
    content = _readable(path)
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise ConfigError(f"{path} does not hold {what} in PEM: {_reason(error)}") from error
    return content


def _try_out(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Shakes hands with itself, in memory. Raises ConfigError when it cannot."""
    asked = context.verify_mode
    context.verify_mode = ssl.CERT_NONE
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_side=False)
    try:
        if not any(all([_goes_on(client), _goes_on(server)]) for _ in range(_SELF_TURNS_MAX)):
            raise ConfigError(f"{files.certificate} and {files.key} cannot be served: the handshake does not end")
    except ssl.SSLError as error:
        raise ConfigError(f"{files.certificate} and {files.key} cannot be served: {_reason(error)}") from error
    finally:
        context.verify_mode = asked


def _goes_on(side: ssl.SSLObject) -> bool:
    """Whether this side is done."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
