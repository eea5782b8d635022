"""`silt access`: keys, roles and entries, and who may do what."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import click

from siltlog.cli.commands.access.log import log
from siltlog.cli.output import grid, pairs
from siltlog.cli.server_options import ServerCommand, take_settings
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, client_options, needs, output_option, pass_session
from siltlog.infra.client.calls import Call, Document, document_of
from siltlog.infra.client.core import json_request
from siltlog.infra.clock import SystemClock, format_us
from siltlog.infra.settings.units import duration_ms

ROLES = ("admin", "operator", "producer", "consumer", "viewer")
RIGHTS = ("read", "write", "create", "alter", "delete", "describe", "admin")
_PATH = "/v1/access"
_NO_NAME = re.compile(r"[^a-zA-Z0-9._-]+")
_ID_CHARS_MAX = 196
_HELD, _NOTHING_TO_SAY = 202, 204


class Duration(click.ParamType[int]):
    """Milliseconds, written with a unit."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else duration_ms(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group()
def access() -> None:
    """Manage who may do what: API keys, roles, and entries that allow or deny."""


access.add_command(log)


@access.command(epilog="Example:  silt access show --output json")
@client_options
@pass_session
def show(session: Session) -> None:
    """Show all keys, roles and entries."""
    document = session.call(document_of("GET", _PATH))
    keys = [{**key, "expires_at": key["expires_at"] or "never"} for key in document["keys"]]
    roles = [{"id": role_id, **role} for role_id, role in document["bindings"].items()]
    entries = [
        {"id": entry_id, **entry, "operations": ", ".join(entry["operations"])}
        for entry_id, entry in document["acls"].items()
    ]
    session.output.document(
        document,
        value=[key["id"] for key in keys],
        tables=[
            grid(keys, ("id", "name", "made_at", "expires_at"), title="Keys"),
            grid(roles, ("id", "principal", "role", "prefix"), title="Roles"),
            grid(entries, ("id", "effect", "principal", "operations", "kind", "pattern", "name"), title="Entries"),
        ],
    )


@access.command(epilog="Example:  silt access whoami")
@client_options
@pass_session
def whoami(session: Session) -> None:
    """Show whom the server takes you for."""
    document = session.call(document_of("GET", f"{_PATH}/whoami"))
    roles = ", ".join(_said(role) for role in document["roles"]) or "none"
    session.output.document(document, value=[document["principal"]], tables=[pairs({**document, "roles": roles})])


@access.command(epilog="Example:  silt access check key:etl write topic:flights")
@click.argument("principal")
@click.argument("operation", type=click.Choice(RIGHTS), metavar="RIGHT")
@click.argument("resource", metavar="topic:NAME|group:NAME|cluster")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="A group of the principal's token; repeatable.")
@client_options
@pass_session
def check(session: Session, principal: str, operation: str, resource: str, groups: tuple[str, ...]) -> None:
    """Ask whether somebody may do something, and what decides it; exit status 3 when not."""
    asked = {"principal": principal, "operation": operation, "resource": resource, "groups": list(groups)}
    document = session.call(document_of("POST", f"{_PATH}/check", asked))
    shown = {"allowed": "yes" if document["allowed"] else "no", "because": document["because"] or "nothing allows it"}
    session.output.document(document, value=[document["allowed"]], tables=[pairs(shown)])
    if not document["allowed"]:
        click.get_current_context().exit(EXIT_FOUND_WRONG)


@access.group()
def key() -> None:
    """API keys: make, list, replace, revoke."""


@key.command(epilog="Example:  silt access key create etl --role producer --prefix flights --output value > token")
@click.argument("name")
@click.option("--role", "-r", "roles", multiple=True, type=click.Choice(ROLES), help="A role; repeatable.")
@click.option("--prefix", default="", help="The roles are for names that begin with this only.")
@click.option("--expires-in", type=Duration(), metavar="TIME", help="How long it counts, such as 90d; for ever.")
@client_options
@pass_session
def create(session: Session, name: str, roles: tuple[str, ...], prefix: str, expires_in: int | None) -> None:
    """Make an API key for the principal key:NAME. It is shown this once."""
    wanted: dict[str, Any] = {"name": name, "bindings": [{"role": role, "prefix": prefix} for role in roles]}
    if expires_in is not None:
        wanted["expires_at"] = format_us(SystemClock().now_us() + expires_in * 1000)
    _print_key(session, session.call(_once("POST", f"{_PATH}/keys", wanted)))


@key.command("list", epilog="Example:  silt access key list")
@client_options
@pass_session
def list_(session: Session) -> None:
    """List the API keys. The keys themselves are kept nowhere."""
    keys = session.call(document_of("GET", _PATH))["keys"]
    rows = [{**each, "expires_at": each["expires_at"] or "never"} for each in keys]
    table = grid(rows, ("id", "name", "made_at", "expires_at"))
    session.output.document({"keys": keys}, value=[each["id"] for each in keys], tables=[table])


@key.command(epilog="Example:  silt access key rotate 3kTMd0Jq8xWf --overlap 2h --output value > token")
@click.argument("key_id", metavar="ID")
@click.option("--overlap", type=Duration(), metavar="TIME", default="1d", help="How long the old one counts; 1d.")
@client_options
@pass_session
def rotate(session: Session, key_id: str, overlap: int) -> None:
    """Make another key of the same name. It is shown this once; the old one counts for a while more."""
    path = f"{_PATH}/keys/{quote(key_id, safe='')}/rotate"
    _print_key(session, session.call(_once("POST", path, {"overlap_ms": overlap})))


@key.command(epilog="Example:  silt access key revoke 3kTMd0Jq8xWf")
@click.argument("key_id", metavar="ID")
@client_options
@pass_session
def revoke(session: Session, key_id: str) -> None:
    """Have a key count no more, at once."""
    everywhere, warnings = session.call(_revoked(f"{_PATH}/keys/{quote(key_id, safe='')}"))
    if not everywhere:
        session.output.note("Revoked on this node; elsewhere once the object store answers.")
    for warning in warnings:
        session.output.note(warning)
    document = {"id": key_id, "revoked": True, "everywhere": everywhere, "warnings": warnings}
    session.output.document(document, value=[key_id], tables=[pairs({"revoked": key_id})])


@access.group()
def role() -> None:
    """Roles: give, and take back."""


@role.command("give", epilog="Example:  silt access role give group:analysts consumer --prefix flights")
@click.argument("principal")
@click.argument("role_name", type=click.Choice(ROLES), metavar="|".join(ROLES))
@click.option("--prefix", default="", help="For names that begin with this only.")
@client_options
@pass_session
def give_role(session: Session, principal: str, role_name: str, prefix: str) -> None:
    """Give a role to key:NAME, user:NAME, cert:NAME, group:NAME, or to everybody (*)."""
    parts = (principal.removeprefix("key:"), role_name, *([prefix] if prefix else ()))
    _put(session, "bindings", _name_of(*parts), {"principal": principal, "role": role_name, "prefix": prefix})


@role.command("take", epilog="Example:  silt access role take etl.producer.flights")
@click.argument("role_id", metavar="ID")
@client_options
@pass_session
def take_role(session: Session, role_id: str) -> None:
    """Take a role back, by its id as `silt access show` has it. The last administrator stays."""
    _delete(session, "bindings", role_id)


def _entry_options(command: Callable[..., None]) -> Callable[..., None]:
    """What an entry says: of whom, which rights, to what."""
    for option in (
        click.option("--prefix", is_flag=True, help="All names that begin with the given one."),
        click.option("--cluster", is_flag=True, help="The cluster."),
        click.option("--group", help="The group's name."),
        click.option("--topic", help="The topic's name."),
        click.argument("rights", nargs=-1, required=True, type=click.Choice(RIGHTS)),
        click.argument("principal"),
    ):
        command = option(command)
    return command


@access.command(epilog="Example:  silt access grant key:report read describe --topic flights")
@_entry_options
@client_options
@pass_session
def grant(session: Session, /, **given: Any) -> None:
    """Allow a principal some rights to a topic, a group or the cluster."""
    _entry(session, "allow", **given)


@access.command(epilog="Example:  silt access deny '*' read --topic salaries")
@_entry_options
@client_options
@pass_session
def deny(session: Session, /, **given: Any) -> None:
    """Deny a principal some rights, whatever else allows them."""
    _entry(session, "deny", **given)


@access.command(epilog="Example:  silt access remove report.allow.topic.flights.read-describe")
@click.argument("entry_id", metavar="ID")
@client_options
@pass_session
def remove(session: Session, entry_id: str) -> None:
    """Remove an entry, by its id as `silt access show` has it."""
    _delete(session, "acls", entry_id)


@access.command(
    cls=ServerCommand, epilog="Example:  silt access bootstrap ops --root s3://bucket/lake --output value > token"
)
@click.argument("name")
@output_option
@pass_session
def bootstrap(session: Session, /, name: str, **settings: Any) -> None:
    """Make the first key, before any server runs: key:NAME, which administers everything.

    Only where there is no access document. It needs the secret of the cluster, which it makes in the data directory
    where SILT_SECRET_FILE names none.
    """
    loaded = take_settings(settings).settings
    with needs("server", "silt access bootstrap"):
        from siltlog.infra.store.store import open_store
        from siltlog.infra.telemetry import logger
        from siltlog.server.access.bootstrap import first_key
    store = open_store(loaded.root_uri, s3_endpoint=loaded.s3_endpoint, s3_region=loaded.s3_region)
    made = first_key(loaded, store, name, SystemClock(), logger(loaded.log_level, loaded.log_format))
    _print_key(session, {"id": made.key_id, "name": name, "key": made.text(), "expires_at": None})


def _entry(
    session: Session,
    effect: str,
    principal: str,
    rights: tuple[str, ...],
    topic: str | None,
    group: str | None,
    cluster: bool,
    prefix: bool,
) -> None:
    named = [("topic", topic), ("group", group), ("cluster", "cluster" if cluster else None)]
    chosen = [(kind, name) for kind, name in named if name is not None]
    if len(chosen) != 1:
        raise click.UsageError("say of what: one of --topic, --group and --cluster")
    kind, name = chosen[0]
    wanted = {
        "principal": principal,
        "kind": kind,
        "name": name,
        "operations": list(dict.fromkeys(rights)),
        "pattern": "prefix" if prefix else "literal",
        "effect": effect,
    }
    of = f"{name}-all" if prefix else name
    _put(session, "acls", _name_of(principal.removeprefix("key:"), effect, kind, of, "-".join(sorted(rights))), wanted)


def _put(session: Session, part: str, part_id: str, wanted: Document) -> None:
    document = session.call(document_of("PUT", f"{_PATH}/{part}/{quote(part_id, safe='')}", wanted))
    made = {"id": part_id, **wanted, **document}
    shown = {name: ", ".join(value) if isinstance(value, list) else value for name, value in made.items()}
    session.output.document(made, value=[part_id], tables=[pairs(shown)])


def _delete(session: Session, part: str, part_id: str) -> None:
    document = session.call(document_of("DELETE", f"{_PATH}/{part}/{quote(part_id, safe='')}"))
    session.output.document({"id": part_id, **document}, value=[part_id], tables=[pairs({"removed": part_id})])


def _print_key(session: Session, document: Document) -> None:
    session.output.document(document, value=[document["key"]], tables=[pairs(document)])
    session.output.note("This is the only time that the key is shown.")


def _once(method: str, path: str, wanted: Document) -> Call[Document]:
    """A request that is not repeated: each that arrives makes another key, and nobody would have the first."""
    reply = yield json_request(method, path, wanted, repeatable=False)
    document: Document = reply.json()
    return document


def _revoked(path: str) -> Call[tuple[bool, list[str]]]:
    """Whether it holds on every node by now, and what follows of it."""
    reply = yield json_request("DELETE", path)
    return reply.status != _HELD, [] if reply.status == _NOTHING_TO_SAY else reply.json().get("warnings", [])


def _name_of(*parts: str) -> str:
    """Names what is made by what it is, so that making it again changes nothing."""
    return _NO_NAME.sub("-", ".".join("everybody" if part == "*" else part for part in parts))[:_ID_CHARS_MAX]


def _said(given: Document) -> str:
    return f"{given['role']} of {given['prefix']}*" if given["prefix"] else str(given["role"])
