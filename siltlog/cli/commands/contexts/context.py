"""`silt context`."""

import click

from siltlog.cli.output import grid, pairs
from siltlog.cli.session import Session, output_option, pass_session

KEY_PARTS = 3


@click.group()
def context() -> None:
    """The servers that were logged in to, and which of them is meant."""


@context.command("list", epilog="Example:  silt context list --output value")
@output_option
@pass_session
def list_(session: Session) -> None:
    """List the contexts; the current one is marked."""
    from siltlog.infra.client.credentials.contexts import contexts_file, read_contexts

    contexts = read_contexts(contexts_file())
    rows = [
        {"context": name, "url": one.url, "current": name == contexts.current} for name, one in contexts.by_name.items()
    ]
    shown = [{**row, "current": "*" if row["current"] else ""} for row in rows]
    session.output.document(
        {"contexts": rows}, value=list(contexts.by_name), tables=[grid(shown, ("current", "context", "url"))]
    )


@context.command(epilog="Example:  silt context use ops")
@click.argument("name")
@pass_session
def use(session: Session, name: str) -> None:
    """Mean NAME from now on."""
    from siltlog.infra.client.credentials.contexts import contexts_file, read_contexts, write_contexts

    file = contexts_file()
    write_contexts(file, read_contexts(file).using(name))


@context.command(epilog="Example:  silt context show ops")
@click.argument("name", required=False)
@output_option
@pass_session
def show(session: Session, name: str | None) -> None:
    """Show the current context, or NAME. Of its token no more is shown than which key it is."""
    from siltlog.infra.client.credentials.contexts import contexts_file, read_contexts
    from siltlog.infra.errors import ConfigError

    contexts = read_contexts(contexts_file())
    name = name or contexts.current
    if name is None:
        raise ConfigError("no context is used; `silt login` makes one, `silt context use` chooses one")
    one = contexts.of(name)
    document = {"context": name, "url": one.url, "token": masked(one.token), "ca": one.ca, "cert": one.cert}
    said = {what: value for what, value in document.items() if value is not None}
    session.output.document(document, value=[one.url], tables=[pairs(said)])


@context.command(epilog="Example:  silt context remove ops")
@click.argument("name")
@pass_session
def remove(session: Session, name: str) -> None:
    """Forget NAME and its token. The token holds on until it is revoked or expires."""
    from siltlog.infra.client.credentials.contexts import contexts_file, read_contexts, write_contexts

    file = contexts_file()
    write_contexts(file, read_contexts(file).without(name))


def masked(token: str | None) -> str | None:
    """The id of a key, which is no secret; nothing of any other token."""
    if token is None:
        return None
    parts = token.split("_")
    return f"{parts[0]}_{parts[1]}_***" if len(parts) == KEY_PARTS and parts[0] == "silt" else "***"
