"""How a Redis is reached: its address, who signs in, and what TLS goes by."""

import ssl
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool

from siltlog.infra.locations import password_of, redis_url
from siltlog.infra.redaction import redacted

TLS_SCHEME = "rediss"


@dataclass(frozen=True, slots=True)
class RedisAccess:
    """The `user` and the `password` go beside the address, or in it; `ca`, `cert` and `key` are paths of PEM files."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca: str = ""
    cert: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return f"RedisAccess({self.place!r})"

    @property
    def place(self) -> str:
        """The address without its password and query. Raises ValueError for one that is none."""
        return redis_url(self.url)

    def at(self, host: str, port: int) -> "RedisAccess":
        """The same way to another server."""
        parts = urlsplit(self.url)
        who, at, _ = parts.netloc.rpartition("@")
        named = f"[{host}]" if ":" in host else host
        return replace(self, url=parts._replace(netloc=f"{who}{at}{named}:{port}").geturl())

    def options(self) -> dict[str, Any]:
        """The keywords of redis-py's connections, beside the address."""
        found: dict[str, Any] = {}
        if self.user:
            found["username"] = self.user
        if self.password:
            found["password"] = self.password
        if urlsplit(self.url).scheme == TLS_SCHEME:
            given = {"ssl_ca_certs": self.ca, "ssl_certfile": self.cert, "ssl_keyfile": self.key}
            found |= {name: value for name, value in given.items() if value}
            # One that the address names holds: `ssl_min_version` there is a number that redis-py does not take.
            found["ssl_min_version"] = ssl.TLSVersion.TLSv1_2
        return found

    def checked(self) -> "RedisAccess":
        """Raises ValueError, with a sentence without the password, where it cannot be used. Connects to nothing."""
        parts = urlsplit(self.place)
        named = parse_qs(urlsplit(self.url).query)
        if self.password and password_of(self.url):
            raise ValueError("SILT_REDIS_PASSWORD is set, and SILT_REDIS_URL has a password too: leave out one")
        if self.user and (urlsplit(self.url).username or "username" in named):
            raise ValueError("SILT_REDIS_USER is set, and SILT_REDIS_URL has a user too: leave out one")
        if (self.ca or self.cert or self.key) and parts.scheme != TLS_SCHEME:
            raise ValueError(
                "SILT_REDIS_CA, SILT_REDIS_CERT and SILT_REDIS_KEY are for TLS: write SILT_REDIS_URL as rediss://host:port"
            )
        if self.key and not self.cert:
            raise ValueError("SILT_REDIS_KEY is the key of a certificate: set SILT_REDIS_CERT too")
        connection_pool(self)
        if parts.scheme == TLS_SCHEME:
            self._check_files()
        return self

    def _check_files(self) -> None:
        context = ssl.create_default_context()
        if self.ca:
            try:
                context.load_verify_locations(self.ca)
            except (OSError, ssl.SSLError) as error:
                raise ValueError(f"SILT_REDIS_CA={self.ca!r} cannot be used: {_reason(error)}") from None
        if self.cert:
            try:
                # Without a callback OpenSSL would ask for the password of an encrypted key on the terminal.
                context.load_cert_chain(self.cert, self.key or None, password=_no_password)
            except (OSError, ssl.SSLError, ValueError) as error:
                raise ValueError(
                    f"SILT_REDIS_CERT={self.cert!r} and its key cannot be used: {_reason(error)}"
                ) from None


def _no_password() -> str:
    raise ValueError("the key is encrypted, and must not be")


def connection_pool(access: RedisAccess, **options: Any) -> BlockingConnectionPool:
    """Connects to nothing yet. Raises ValueError for what redis-py does not understand in the address."""
    try:
        pool = BlockingConnectionPool.from_url(access.url, **(access.options() | options))
        pool.make_connection()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError, exceptions.RedisError) as error:
        raise ValueError(f"it is not a Redis address that can be used: {redacted(str(error))}") from None
    return pool


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it has no certificate in PEM"
    return getattr(error, "strerror", None) or str(error)
