"""An authority of certificates, the files of a server and of clients that it signed, and their contexts."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from siltlog.infra.clock import MICROS_PER_SECOND, SystemClock
from siltlog.infra.security.certificates import Clients, TlsFiles


class Made:
    """An authority, and a server's files of it in a folder."""

    def __init__(self, folder: Path, authority: trustme.CA | None = None) -> None:
        self.folder = folder
        self.authority = authority or trustme.CA()
        self.files = TlsFiles(folder / "server.pem", folder / "server.key")
        self.issue()

    def issue(self, not_after: datetime | None = None, *hosts: str, not_before: datetime | None = None) -> None:
        issued = self.authority.issue_cert(
            *(hosts or ("localhost", "127.0.0.1")), not_before=not_before, not_after=not_after
        )
        issued.private_key_pem.write_to_path(str(self.files.key))
        self.files.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    def with_clients(self, clients: Clients = "required") -> TlsFiles:
        path = self.folder / "authority.pem"
        self.authority.cert_pem.write_to_path(str(path))
        return self.files._replace(clients=clients, client_ca=path)

    def revoke(self, *serials: int) -> Path:
        key = serialization.load_pem_private_key(self.authority.private_key_pem.bytes(), None)
        issuer = x509.load_pem_x509_certificate(self.authority.cert_pem.bytes()).subject
        now = datetime.now(UTC)
        made = x509.CertificateRevocationListBuilder(issuer, now - timedelta(days=1), now + timedelta(days=1))
        for serial in serials:
            revoked = x509.RevokedCertificateBuilder(serial, now - timedelta(hours=1)).build()
            made = made.add_revoked_certificate(revoked)
        path = self.folder / "revoked.pem"
        assert isinstance(key, EllipticCurvePrivateKey)
        path.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path


class LaterClock(SystemClock):
    """The clock of this machine, set ahead by `seconds`."""

    seconds = 0.0

    def now_us(self) -> int:
        return super().now_us() + int(self.seconds * MICROS_PER_SECOND)


def client_of(made: Made, name: str | None = None) -> ssl.SSLContext:
    """A client that trusts the authority, with a certificate of that name where there is one."""
    client = ssl.create_default_context()
    made.authority.configure_trust(client)
    if name is not None:
        made.authority.issue_cert(name).configure_cert(client)
    return client


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Shakes hands in memory; the version that was agreed on. Raises SSLError of the side that refused."""
    return shaken(server, client)[1].version()


def shaken(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Client and server after a handshake in memory, for which the client takes up a session again where one is given.
    Raises as `shake_hands`."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost", session=session),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(10):
        done = True
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                done = False
        if done:
            return sides
    raise AssertionError("the handshake does not end")


def serial_of(issued: trustme.LeafCert) -> int:
    return x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()).serial_number
