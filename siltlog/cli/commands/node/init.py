"""`silt init`: the questions of a first start, and the files that come of the answers."""

import os
import pwd
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import click

from siltlog.cli.output import pairs
from siltlog.cli.session import Session, needs, on_terminal, output_option, pass_session
from siltlog.infra import names
from siltlog.infra.errors import ConfigError, SiltlogError
from siltlog.infra.locations import place_uri

T = TypeVar("T")
MACHINE, NETWORK = "machine", "network"
FILES, PROXY, NOTHING = "files", "proxy", "nothing"
HAND = "hand"
UNIT, COMPOSE = "unit", "compose"
STARTED_BY = {"systemd": (UNIT, "siltlog.service"), "compose": (COMPOSE, "compose.yaml")}
KEY_FILE = "admin.key"
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 (who asks for the network means all of it)
Chosen = dict[str, int | str]
EPILOG = """\b
Examples:
  silt init
  silt init --yes
  silt init --yes --root s3://logs/lake --connect network --tls-cert cert.pem --tls-key key.pem --hosts logs.example"""


@click.command(epilog=EPILOG)
@click.option("--data-dir", metavar="PATH", help="The write-ahead log and all else that stays here; silt-data.")
@click.option(
    "--root", metavar="PLACE", help="Where tables go: a folder, or s3://bucket/prefix; in the data directory."
)
@click.option("--s3-endpoint", metavar="URL", help="The S3 server, where it is not Amazon's.")
@click.option("--s3-region", metavar="NAME", help="The region of the bucket.")
@click.option("--connect", type=click.Choice((MACHINE, NETWORK)), help="Who may connect; machine.")
@click.option("--host", metavar="ADDRESS", help="The address to listen on, for the network.")
@click.option("--port", type=click.IntRange(0, 65_535), help="7070.")
@click.option("--hosts", metavar="NAMES", help="The names that clients call it by.")
@click.option("--auth", type=click.Choice(("on", "off")), help="Whether callers need a key; on for the network.")
@click.option("--tls-cert", metavar="FILE", help="The certificate, with those between it and its authority.")
@click.option("--tls-key", metavar="FILE", help="Its key.")
@click.option("--trusted-proxies", metavar="ADDRESSES", help="Proxies at which TLS ends.")
@click.option("--insecure", metavar="WORDS", help="What it does without for the network: no-tls, no-auth.")
@click.option("--path", type=click.Path(dir_okay=False, path_type=Path), help="The file; SILT_CONFIG, or siltlog.toml.")
@click.option(
    "--key-file", type=click.Path(dir_okay=False, path_type=Path), help=f"The first key; {KEY_FILE} beside the file."
)
@click.option(
    "--unit", type=click.Path(dir_okay=False, path_type=Path), help="Write a unit of systemd, such as siltlog.service."
)
@click.option(
    "--compose",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a file of Compose that runs the image, such as compose.yaml.",
)
@click.option("--yes", is_flag=True, help="Ask nothing: what no option says is as by default.")
@click.option("--force", is_flag=True, help="Write over the files that are there. Data and keys of a log stay.")
@output_option
@pass_session
def init(
    session: Session,
    /,
    path: Path | None,
    key_file: Path | None,
    unit: Path | None,
    compose: Path | None,
    yes: bool,
    force: bool,
    **flags: Any,
) -> None:
    """Set up a server here: asks what it needs to know, tries it, and writes its files.

    These are siltlog.toml, the secret and the first key where callers need one, both for this user alone. Nothing is
    written before the last answer, and nothing is left of what could not be finished.
    """
    with needs("server", "silt init"):
        from siltlog.infra.clock import SystemClock
        from siltlog.infra.settings.loading import config_path
        from siltlog.infra.telemetry import logger
        from siltlog.server.settings.founding import check_free, found
    if not yes and not on_terminal():
        raise click.UsageError("there is no terminal to ask on: say --yes, and by options what is not as by default")
    config = (path or config_path()).absolute()
    key_path = (key_file or config.parent / KEY_FILE).absolute()
    starter = _starter(unit, compose)
    check_free(config, starter and starter.path, force=force)
    given = {name: value for name, value in flags.items() if value is not None}
    chosen = _by_flags(given) if yes else _asked(given)
    if not yes and starter is None:
        starter = _asked_starter(config.parent)
    check_free(config, starter and starter.path, key_path if chosen.get("auth") == "on" else None, force=force)
    if not yes:
        click.echo(f"\nThis goes into {config}:\n", err=True)
        for name, value in chosen.items():
            click.echo(f"  {name} = {value}", err=True)
        if not click.confirm("\nWrite it?", default=True, err=True):
            raise click.Abort
    beside = {} if starter is None else {starter.path: starter.text(chosen, config)}
    with _not_interrupted():
        done = found(chosen, config, key_path, SystemClock(), logger("warning", "console"), beside)
    made = {"config": str(config), "data_dir": str(chosen["data_dir"])}
    made |= {"key": str(done.key_file)} if done.key_file is not None else {}
    made |= {starter.kind: str(starter.path)} if starter is not None else {}
    following = _next(chosen, config, done.key_file, starter)
    session.output.document({**made, "next": following}, value=list(made.values()), tables=[pairs(made)])
    session.output.note("\n".join(("next:", *following)))


def _by_flags(given: Mapping[str, Any]) -> Chosen:
    """What holds without questions. Raises ConfigError for what would not start."""
    network = given.get("connect") == NETWORK
    chosen: Chosen = {"data_dir": str(_folder(given.get("data_dir", "silt-data")))}
    if given.get("root"):
        chosen["root"] = _place(given["root"])
    if network:
        chosen["host"] = given.get("host", EVERY_ADDRESS)
    chosen |= {name: given[name] for name in ("s3_endpoint", "s3_region", "port", "hosts") if name in given}
    if given.get("auth", "on" if network else "off") == "on":
        chosen["auth"] = "on"
    chosen |= {name: str(_folder(given[name])) for name in ("tls_cert", "tls_key") if name in given}
    chosen |= {name: given[name] for name in ("trusted_proxies", "insecure") if name in given}
    _try_place(chosen)
    return _checked(chosen)


def _asked(given: Mapping[str, Any]) -> Chosen:
    """Asks for what no option says; each answer is tried before the next question."""
    click.echo(
        "A Siltlog server on this machine. Enter takes what stands in brackets; ^C leaves everything as it is.\n",
        err=True,
    )
    answers = dict(given)
    _ask(answers, "data_dir", "Data directory: the write-ahead log, on a disk that stays", "silt-data")
    while True:
        _ask(answers, "root", "Tables: a folder, or s3://bucket/prefix (empty: in the data directory)", "")
        if str(answers["root"]).startswith("s3:"):
            _ask(answers, "s3_endpoint", "S3 server (empty: Amazon's)", "")
            _ask(answers, "s3_region", "Region (empty: as the environment of AWS says)", "")
        try:
            tried: Chosen = {"data_dir": str(_folder(answers["data_dir"])), "root": _place(answers["root"])}
            _try_place(tried | {name: answers[name] for name in ("s3_endpoint", "s3_region") if answers.get(name)})
            break
        except SiltlogError as error:
            if "root" in given:
                raise
            click.echo(f"  {error.detail}", err=True)
            for name in ("root", "s3_endpoint", "s3_region"):
                answers.pop(name, None)
    kinds = click.Choice((MACHINE, NETWORK))
    _ask(answers, "connect", "Who may connect: this machine alone, or the network", MACHINE, kinds)
    network = answers["connect"] == NETWORK
    if network:
        _ask(answers, "host", "Address to listen on", EVERY_ADDRESS)
        _ask(answers, "hosts", "Names that clients call it by, with commas (empty: its addresses)", "")
    _ask(answers, "port", "Port", 7070, click.IntRange(0, 65_535))
    if "auth" not in answers:
        answers["auth"] = "on" if click.confirm("Do callers need a key", default=network, err=True) else "off"
    if network and not {"tls_cert", "trusted_proxies", "insecure"} & answers.keys():
        _ask_tls(answers)
    if network and answers["auth"] == "off":
        words = {*filter(None, str(answers.get("insecure", "")).split(",")), "no-auth"}
        answers["insecure"] = ",".join(sorted(words))
    return _by_flags({name: value for name, value in answers.items() if value != ""})


def _ask_tls(answers: dict[str, Any]) -> None:
    kinds = click.Choice((FILES, PROXY, NOTHING))
    answer = click.prompt("TLS: from files, at a proxy before it, or nothing", FILES, type=kinds, err=True)
    if answer == FILES:
        _ask(answers, "tls_cert", "File of the certificate (PEM)", None, click.Path(exists=True, dir_okay=False))
        _ask(answers, "tls_key", "File of its key", None, click.Path(exists=True, dir_okay=False))
    elif answer == PROXY:
        _ask(answers, "trusted_proxies", "Addresses or networks of the proxies, with commas", None)
    else:
        answers["insecure"] = "no-tls"


def _ask(answers: dict[str, Any], name: str, question: str, default: Any, kind: Any = str) -> None:
    if name not in answers:
        shown = default not in ("", None)
        answers[name] = click.prompt(question, default, type=kind, show_default=shown, err=True)


def _place(said: str) -> str:
    """A folder, or a URI as it is."""
    return said and place_uri(said)


def _folder(said: str) -> Path:
    return Path(said).expanduser().absolute()


def _checked(chosen: Chosen) -> Chosen:
    """Checks it all as a start does, and leaves out compaction where it could not run."""
    from siltlog.doctor.spark import check_spark
    from siltlog.server.listener import listening_problems

    settings = _settings(chosen)
    problems = listening_problems(settings)
    if problems:
        raise ConfigError("; ".join(problems))
    if check_spark(settings).state == "wrong":
        click.echo('Spark has no Java here: compaction is left out (schedule.compact = "off")', err=True)
        chosen["schedule_compact"] = "off"
    return chosen


def _try_place(chosen: Chosen) -> None:
    """Raises ConfigError where tables cannot be there: a commit has to be refused where another one is."""
    from siltlog.doctor.machine import directory_problem
    from siltlog.doctor.services import object_store
    from siltlog.infra.clock import SystemClock
    from siltlog.server.settings.founding import folder_for_a_moment

    settings = _settings(chosen)
    problem = directory_problem(settings.data_dir)
    if problem is not None:
        raise ConfigError(problem)
    root = urlsplit(settings.root_uri)
    with folder_for_a_moment(Path(unquote(root.path))) if root.scheme == "file" else nullcontext():
        found = object_store(settings, SystemClock())
    if found.state == "wrong":
        raise ConfigError(found.detail)


def _settings(chosen: Chosen) -> Any:
    from siltlog.infra.settings.loading import checked

    return checked({name: value for name, value in chosen.items() if value != ""})


@contextmanager
def _not_interrupted() -> Iterator[None]:
    """Has ^C wait until all is written, or taken away again."""
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


class Starter(NamedTuple):
    """A file by which something else than a hand starts the server."""

    kind: str
    path: Path

    def text(self, chosen: Chosen, config: Path) -> str:
        """The file for a server of these settings, run as this user. Raises ConfigError where that would not do."""
        from siltlog.server.settings.compose import compose_of
        from siltlog.server.settings.unit import Places, unit_of

        settings = _settings(chosen)
        root = urlsplit(settings.root_uri)
        data_dir, folder = Path(settings.data_dir), Path(unquote(root.path))
        tables = [folder] if root.scheme == "file" and not folder.is_relative_to(data_dir) else []
        read = [Path(str(chosen[name])) for name in ("tls_cert", "tls_key") if name in chosen]
        silt, user = Path(sys.executable).with_name("silt"), os.getuid()
        name = pwd.getpwuid(user).pw_name if self.kind == UNIT else f"{user}:{os.getgid()}"
        places = Places(silt, name, config, [data_dir, *tables], read)
        return unit_of(places, settings.port) if self.kind == UNIT else compose_of(places, settings)

    def command(self) -> str:
        path = shlex.quote(str(self.path))
        if self.kind == UNIT:
            return f"sudo systemctl enable --now {path}"
        return f"docker compose --file {path} up --detach --wait"


def _starter(unit: Path | None, compose: Path | None) -> Starter | None:
    if unit is not None and compose is not None:
        raise click.UsageError("--unit and --compose are two ways to start one server: name one")
    if unit is not None and unit.suffix != ".service":
        raise click.BadParameter("systemd takes a name that ends with .service", param_hint="--unit")
    if unit is not None:
        return Starter(UNIT, unit.absolute())
    return None if compose is None else Starter(COMPOSE, compose.absolute())


def _asked_starter(folder: Path) -> Starter | None:
    kinds = click.Choice((HAND, *STARTED_BY))
    answer = click.prompt("Started by hand, by systemd, or as an image by compose", HAND, type=kinds, err=True)
    if answer == HAND:
        return None
    kind, file = STARTED_BY[answer]
    return Starter(kind, folder / file)


def _next(chosen: Chosen, config: Path, key_file: Path | None, starter: Starter | None) -> list[str]:
    named = "" if config == Path(names.CONFIG_FILE).absolute() else f"{names.ENV_CONFIG}={config} "
    scheme = "https" if "tls_cert" in chosen else "http"
    port = chosen.get("port", 7070)
    login = "" if key_file is None else f" --token @{key_file}"
    host = str(chosen.get("hosts", "")).partition(",")[0].strip() or "127.0.0.1"
    start = f"{named}silt serve" if starter is None else starter.command()
    return [
        f"  {start}",
        f"  silt topic create events --url {scheme}://{host}:{port}{login}",
        f"  {named}silt doctor --url {scheme}://{host}:{port}{login}",
    ]
