"""TLS before a service that has none: a real server of it on loopback, which passes on what comes."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import trustme

PIECE_BYTES = 65_536


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files. The authority signed both the door's certificate, of `127.0.0.1`, and the client's."""

    ca: Path
    cert: Path
    key: Path
    other_ca: Path
    context: ssl.SSLContext


def certificates(folder: Path, *, client_required: bool = True) -> Certificates:
    folder.mkdir(parents=True, exist_ok=True)
    authority, other = trustme.CA(), trustme.CA()
    client = authority.issue_cert("silt.example")
    paths = [folder / name for name in ("ca.pem", "cert.pem", "key.pem", "other-ca.pem")]
    authority.cert_pem.write_to_path(paths[0])
    paths[1].write_bytes(b"".join(blob.bytes() for blob in client.cert_chain_pems))
    client.private_key_pem.write_to_path(paths[2])
    other.cert_pem.write_to_path(paths[3])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if client_required:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return Certificates(*paths, context)


@contextmanager
def tls_door(port: int, context: ssl.SSLContext) -> Iterator[int]:
    """The port at which TLS is spoken, as long as the block lasts; behind it the service at `port` of loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, port, context), daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            # Closing alone does not wake who waits to accept.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, port: int, context: ssl.SSLContext) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_pass, args=(plain, port, context), daemon=True).start()


def _pass(plain: socket.socket, port: int, context: ssl.SSLContext) -> None:
    with plain, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as behind:
        plain.settimeout(10)
        with context.wrap_socket(plain, server_side=True) as outer:
            outer.settimeout(None)
            back = threading.Thread(target=_copy, args=(behind, outer), daemon=True)
            back.start()
            _copy(outer, behind)
            back.join(5)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(PIECE_BYTES):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
