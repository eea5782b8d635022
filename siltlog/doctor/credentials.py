"""Credentials: files that others may read, certificates that end, clocks by which tokens are judged."""

from collections.abc import Iterator
from contextlib import closing
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING

from siltlog.doctor.finding import Finding
from siltlog.infra import names
from siltlog.infra.client.connection import Address, Connection
from siltlog.infra.client.credentials.authorized import tls_of
from siltlog.infra.client.credentials.choice import TokenFile, chosen
from siltlog.infra.client.credentials.contexts import contexts_file, read_contexts
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.errors import ConfigError
from siltlog.infra.security.secret_file import open_to_others

if TYPE_CHECKING:
    from siltlog.infra.settings.settings import ServerSettings

DAY_SECONDS = 24 * 3_600
SOON_DAYS = 14
"""Whoever renews certificates by himself does so earlier."""
KEYS = ("tls_key", "redis_key")
"""The settings that name the file of a certificate's key."""
SECRET_SUFFIX = "_file"  # noqa: S105 (how settings end that name a file with a secret)


def check_secrets(settings: "ServerSettings | None", url: str, credentials: Credentials) -> Iterator[Finding]:
    """The files of secrets, of this user and of a server started here, that others may read."""
    files: dict[str, Path] = {}
    try:
        found = chosen(Endpoints(url), credentials, found=True)
        read_contexts(contexts_file())
    except ConfigError as error:
        yield Finding("secrets", "wrong", error.detail, "silt login")
    else:
        if isinstance(found.token, TokenFile):
            files["the token"] = found.token.path
        if found.cert is not None:
            # The last of them has the key.
            files["the key of this client"] = Path(found.cert[-1] if isinstance(found.cert, tuple) else found.cert)
    if settings is not None:
        files["the secret of the server"] = settings.data_dir / names.SECRET_FILE
        named = {name: getattr(settings, name) for name in type(settings).model_fields if name.endswith(SECRET_SUFFIX)}
        named |= {name: getattr(settings, name) for name in KEYS}
        files |= {f"{names.ENV_PREFIX}{name.upper()}": Path(path) for name, path in named.items() if path}
    for what, path in files.items():
        try:
            problem = open_to_others(path.stat())
        except OSError:
            continue  # who needs it says so
        if problem:
            yield Finding("secrets", "wrong", f"{what}, {path}: {problem}", f"chmod 600 {path}")


def check_certificate(
    endpoints: Endpoints, url: str, credentials: Credentials | None, clock: Clock
) -> Iterator[Finding]:
    """The certificate of one of the servers. Raises ConnectionFailed."""
    address = Address.of(url)
    if not address.is_tls:
        return
    tls = tls_of(endpoints, chosen(endpoints, credentials or Credentials(), found=True))
    with closing(Connection(address, tls.context())) as connection:
        ends = connection.certificate_ends
    if ends is not None:
        yield until(ends, f"that of {address.authority}", clock.now_us() / MICROS_PER_SECOND)


def check_own_certificate(settings: "ServerSettings", clock: Clock) -> Iterator[Finding]:
    """The certificate in the files of a server started here, whether or not it runs."""
    from siltlog.infra.security.certificates import load_identity
    from siltlog.server.tls import tls_files

    try:
        files = tls_files(settings)
        if files is None:
            return
        not_after = load_identity(files).not_after.timestamp()
    except ConfigError as error:
        yield Finding("certificate", "wrong", error.detail, "mend the file, or SILT_TLS_CERT and SILT_TLS_KEY")
        return
    yield until(not_after, str(files.certificate), clock.now_us() / MICROS_PER_SECOND)


def until(ends: float, whose: str, now: float) -> Finding:
    """Judges a certificate by when it ends, in seconds since 1970."""
    left = int((ends - now) // DAY_SECONDS)
    if ends <= now:
        return Finding("certificate", "wrong", f"{whose} has expired", "renew it")
    if left < SOON_DAYS:
        return Finding("certificate", "warning", f"{whose} expires in {left} days", "renew it")
    return Finding("certificate", "ok", f"{whose} holds for {left} days")


def seconds_ahead(date: str, now_us: int) -> float | None:
    """How far the clock is ahead that a `Date` was read from; None where there is none."""
    try:
        said = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
    # It is cut to the second.
    return said + 0.5 - now_us / MICROS_PER_SECOND
