"""Chooses a client's credentials: those it was given, else the environment's, else those of a context."""

from pathlib import Path

from siltlog.infra import names
from siltlog.infra.client.address import variable
from siltlog.infra.client.credentials.contexts import context_for
from siltlog.infra.client.credentials.credentials import Credentials, Token
from siltlog.infra.client.endpoints import UNIX, Endpoints
from siltlog.infra.errors import ConfigError

TOKEN_BYTES_MAX = 64 * 1024


class TokenFile:
    """Gives the token that is in a file now: it may be another later."""

    def __init__(self, path: Path, said_by: str) -> None:
        self.path = path
        self._said_by = said_by

    def __call__(self) -> str:
        """Raises ConfigError where it cannot be read."""
        try:
            with self.path.open("rb") as file:
                content = file.read(TOKEN_BYTES_MAX + 1)
            text = content.decode("ascii").strip()
        except OSError as error:
            raise ConfigError(f"{self._said_by}: {self.path}: {error.strerror}") from None
        except UnicodeDecodeError:
            text = ""
        if not text or len(content) > TOKEN_BYTES_MAX:
            raise ConfigError(f"{self._said_by}: {self.path} has no token in it")
        return text


def checked_token_file(path: str, said_by: str) -> TokenFile:
    """Reads it once, so that one that cannot be used is told at once. Raises ConfigError."""
    file = TokenFile(Path(path).expanduser(), said_by)
    file()
    return file


def chosen(endpoints: Endpoints, given: Credentials, *, found: bool) -> Credentials:
    """The credentials that hold towards these servers; only those that were given where none are to be `found`.

    Raises ConfigError for what was given and cannot act, and for a file that cannot be used.
    """
    for name in ("ca", "cert"):
        if getattr(given, name) is None:
            continue
        if not found:
            raise ConfigError(f"{name}= says how to connect, which transport= does itself: give one of them")
        if not any(url.startswith("https:") for url in endpoints.urls):
            raise ConfigError(f"{name}= is of TLS, and {endpoints.urls[0]} has none: use https://, or leave it out")
    if not found:
        return given
    context = context_for(endpoints.urls)
    token = given.token
    # Who calls by a socket is known by it; a second credential would be refused.
    if token is None and not all(url.startswith(UNIX) for url in endpoints.urls):
        token = _token_of_environment() or (None if context is None else context.token)
    cert = given.cert or variable(names.ENV_CERT) or (None if context is None else context.cert)
    return Credentials(
        token=token,
        ca=given.ca or variable(names.ENV_CA) or (None if context is None else context.ca),
        cert=pair_of(cert) if isinstance(cert, str) else cert,
    )


def environment_of(credentials: Credentials) -> dict[str, str]:
    """The variables by which a child process has the same."""
    token, cert = credentials.token, credentials.cert
    pair = cert if isinstance(cert, tuple) else (cert,)
    given = {
        names.ENV_TOKEN: token if isinstance(token, str) else "",
        names.ENV_TOKEN_FILE: str(token.path.absolute()) if isinstance(token, TokenFile) else "",
        names.ENV_CA: "" if credentials.ca is None else str(Path(credentials.ca).absolute()),
        names.ENV_CERT: ",".join(str(Path(path).absolute()) for path in pair if path is not None),
    }
    if given[names.ENV_TOKEN] or given[names.ENV_TOKEN_FILE]:
        return given  # of the two one is empty, whatever this process has in it
    return {name: value for name, value in given.items() if value}


def pair_of(text: str) -> str | tuple[str, str]:
    """Reads a file, or two by a comma, as the environment and the command line have them."""
    certificate, comma, key = text.partition(",")
    return (certificate, key) if comma else text


def _token_of_environment() -> Token | None:
    token, path = variable(names.ENV_TOKEN), variable(names.ENV_TOKEN_FILE)
    if token and path:
        raise ConfigError(f"{names.ENV_TOKEN} and {names.ENV_TOKEN_FILE} are both set: unset one of them")
    if path:
        return checked_token_file(path, names.ENV_TOKEN_FILE)
    return token or None
