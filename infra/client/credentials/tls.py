"""TLS of a client: whom it believes, its own certificate, and why hands were not shaken, in words that help."""

import errno
import os
import ssl
from pathlib import Path
from typing import NoReturn

from siltlog.infra.client.credentials.credentials import Pair, PathLike
from siltlog.infra.errors import ConfigError

ALPN = ("http/1.1",)
ALERT = b"\x15\x03"
"""Begins what a TLS server says to plain text (RFC 8446 section 5.1)."""
PLAIN_SERVER = "the server speaks no TLS there: its URL begins with http://"
TLS_SERVER = "the server speaks TLS there: its URL begins with https://"
_CLOSED = (errno.ECONNRESET, errno.EPIPE)
_WHY_SILENT = {
    "http": "; a server that speaks TLS does so: its URL begins with https://",
    "https": "; a server that asks for a certificate of this client may do so: give one by cert=",
}
_EXPIRED, _NOT_YET, _HOSTNAME, _ADDRESS = 10, 9, 62, 64
_UNKNOWN = (2, 18, 19, 20, 21)
"""Each way in which no trusted authority vouches for a certificate (OpenSSL's X509_V_ERR)."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_ALERTS = {
    "CERTIFICATE_REQUIRED": "the server asks for a certificate of this client: give one by cert=",
    "UNKNOWN_CA": "the server does not know the authority of this client's certificate: have it issued by another",
    "CERTIFICATE_EXPIRED": "this client's certificate has expired: renew it",
    "CERTIFICATE_REVOKED": "this client's certificate was revoked: use another",
    "BAD_CERTIFICATE": "the server does not take this client's certificate: use another",
    "PROTOCOL_VERSION": "the server and this client have no version of TLS in common",
}


class TlsFiles:
    """Certificates in files, and the context made of them: anew when a file is another, so that they can be renewed."""

    def __init__(self, ca: PathLike | None = None, cert: PathLike | Pair | None = None) -> None:
        self._ca = None if ca is None else Path(ca)
        pair = cert if isinstance(cert, tuple) else (cert,)
        self._pair = [Path(path) for path in pair if path is not None]
        self._context: ssl.SSLContext | None = None
        self._seen: list[tuple[int, int, int]] = []

    def context(self) -> ssl.SSLContext:
        """Raises ConfigError that names the file which cannot be used; once there was a context, that one holds on."""
        try:
            seen = [(stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in map(os.stat, self._paths)]
        except OSError as error:
            if self._context is None:
                raise ConfigError(f"{error.filename}: {error.strerror}") from None
            return self._context
        if self._context is None or seen != self._seen:
            try:
                self._context = self._made()
            except ConfigError:
                if self._context is None:
                    raise
            self._seen = seen
        return self._context

    @property
    def _paths(self) -> list[Path]:
        return [*([] if self._ca is None else [self._ca]), *self._pair]

    def _made(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._ca)
        except (OSError, ValueError):
            raise ConfigError(f"{self._ca} has no certificate of an authority in it (PEM)") from None
        context.set_alpn_protocols(ALPN)
        if self._pair:
            try:
                context.load_cert_chain(self._pair[0], self._pair[-1], password=_refuse_password)
            except (OSError, ValueError):
                where = " and ".join(map(str, self._pair))
                raise ConfigError(
                    f"{where}: no certificate with a key that fits it (PEM); the key may be in the same file or a "
                    "second one"
                ) from None
        return context


def _refuse_password() -> NoReturn:
    """OpenSSL would ask for it on the terminal."""
    raise ConfigError("the key of cert= is encrypted: store it without a password, readable by its owner alone")


def tls_failure(error: BaseException, host: str) -> str | None:
    """Says what is wrong and what to do; None for what is no failure of TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = f"certificate verify failed: {error.verify_message}"
        return f"{_unverified(error.verify_code, host)} ({said})"
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return None
    reason = getattr(error, "reason", None) or ""
    if reason in _NO_TLS:
        return PLAIN_SERVER
    told = next((said for alert, said in _ALERTS.items() if reason.endswith(alert)), None)
    return told or f"TLS failed: {reason.replace('_', ' ').lower() or error}"


def why_silent(error: BaseException, url: str) -> str:
    """What to add to the failure of a connection that was closed before the server said its first word."""
    closed = isinstance(error, ConnectionError | ssl.SSLEOFError) or getattr(error, "errno", None) in _CLOSED
    return _WHY_SILENT.get(url.partition(":")[0], "") if closed else ""


def _unverified(code: int, host: str) -> str:
    if code == _EXPIRED:
        return f"the certificate of {host} has expired: renew it there, unless the clock of this machine is wrong"
    if code == _NOT_YET:
        return f"the certificate of {host} is not valid yet: is the clock of this machine right?"
    if code in (_HOSTNAME, _ADDRESS):
        return f"the certificate is not one for {host}: call the server by a name that is in it, or issue it for this"
    if code in _UNKNOWN:
        return f"no authority that is trusted here issued the certificate of {host}: name its file by ca= or SILT_CA"
    return f"the certificate of {host} is not to be trusted"
