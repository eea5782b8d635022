"""`silt login`."""

from contextlib import closing
from urllib.parse import urlsplit

import click

from siltlog.cli.output import pairs
from siltlog.cli.session import RETRY_MS, Session, client_options, on_terminal, pass_session
from siltlog.infra.errors import ConfigError, Refused

NOT_FOUND = 404
EPILOG = """\b
Examples:
  silt login --url https://silt.example                 asks for the token
  silt login ops --url https://silt.example --ca ca.pem --token - < token"""


@click.command(epilog=EPILOG)
@click.argument("name", required=False)
@client_options
@pass_session
def login(session: Session, name: str | None) -> None:
    """Keep a server's address and a token for it, so that the other commands need to be told neither.

    The context is called NAME, else as the server's host, and is the one that is used from now on. It is kept in
    ~/.config/siltlog/contexts.toml, which nobody else may read; the server is asked first whether it takes the token.
    """
    from pathlib import Path

    from siltlog.infra.client.credentials.contexts import Context, contexts_file, read_contexts, write_contexts
    from siltlog.infra.client.credentials.credentials import check_token
    from siltlog.infra.client.endpoints import Endpoints

    file = contexts_file()
    contexts = read_contexts(file)
    endpoints = Endpoints(session.url)
    if session.given_token is None and session.given_cert is None:
        if not on_terminal():
            raise click.UsageError("give the token by --token - (standard input) or --token @FILE")
        session.given_token = check_token(click.prompt("Token", hide_input=True, err=True).strip())
    token = session.given_token() if callable(session.given_token) else session.given_token
    if not (token is None or isinstance(token, str)):
        raise ConfigError("the token is no text")
    who = _who(session)
    context = Context(
        ",".join(endpoints.urls),
        token,
        None if session.given_ca is None else str(Path(session.given_ca).absolute()),
        None
        if session.given_cert is None
        else ",".join(str(Path(path).absolute()) for path in session.given_cert.split(",")),
    )
    name = name or urlsplit(endpoints.urls[0]).hostname or "local"
    write_contexts(file, contexts.with_one(name, context))
    session.output.document(
        {"context": name, "url": context.url, "principal": who},
        value=[name],
        tables=[pairs({"context": name, "server": context.url, "as": who or "-"})],
    )


def _who(session: Session) -> str | None:
    """Asks the server whom it takes this for; None where it says no names. Raises Unauthenticated."""
    from siltlog.infra.client import calls
    from siltlog.infra.client.endpoints import Endpoints
    from siltlog.infra.client.transport import Caller
    from siltlog.infra.clock import SystemClock

    with closing(session.transport()) as transport:
        caller = Caller(Endpoints(session.url), transport, SystemClock(), retry_timeout_ms=RETRY_MS)
        try:
            said = caller.run(calls.document_of("GET", "/v1/access/whoami"))
        except Refused as error:
            if error.status != NOT_FOUND:
                raise
            caller.run(calls.cluster())
            return None
    principal = said.get("principal")
    return None if principal is None else str(principal)
