"""The session of a command: where the server is, how to print, and clients that are made when first needed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from siltlog.infra import names
from siltlog.infra.errors import ConfigError

if TYPE_CHECKING:
    from siltlog.cli.output import Output
    from siltlog.consumers.library.consumer import Consumer
    from siltlog.infra.client.admin import Admin
    from siltlog.ingest.library.producer import Producer

F = TypeVar("F", bound=Callable[..., Any])
OutputFormat = Literal["table", "json", "value"]
Extra = Literal["server", "sql", "spark", "demo"]
FORMATS: tuple[OutputFormat, ...] = ("table", "json", "value")
EXIT_FAILED = 1
EXIT_MISUSED = 2
EXIT_FOUND_WRONG = 3
EXIT_INTERRUPTED = 130
RETRY_MS = 1_000
"""A person waits: no longer than this for a server that is away for a moment."""
_OWN_PACKAGE = "siltlog"


class Session:
    """The options that hold for one run of `silt`, whichever side of the command's name they were given on."""

    def __init__(self) -> None:
        self.given_url: str | None = None
        self.format: OutputFormat = "table"
        self.debug = False

    @property
    def url(self) -> str:
        """Raises ConfigError where a misspelt variable stands for `SILT_URL`."""
        if self.given_url is None:
            from siltlog.infra.client.address import default_url

            self.given_url = default_url()
        return self.given_url

    @property
    def output(self) -> "Output":
        from siltlog.cli.output import Output

        return Output(self.format)

    def admin(self, retry_timeout_ms: int = RETRY_MS) -> "Admin":
        from siltlog.infra.client.admin import Admin

        return Admin(self.url, retry_timeout_ms=retry_timeout_ms)

    def producer(self) -> "Producer":
        from siltlog.ingest.library.producer import Producer

        return Producer(self.url)

    def consumer(self, **arguments: Any) -> "Consumer":
        from siltlog.consumers.library.consumer import Consumer

        return Consumer(self.url, **arguments)


pass_session = click.make_pass_decorator(Session, ensure=True)


def _remember(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(ctx.ensure_object(Session), name, value)

    return callback


def output_option(command: F) -> F:
    """`--output`; read before the other options, so that their errors are printed as it says."""
    return click.option(
        "--output",
        "-o",
        type=click.Choice(FORMATS),
        is_eager=True,
        expose_value=False,
        callback=_remember("format"),
        help="table for people (default), json for programs, value for shells.",
    )(command)


def _refuse_token(_: click.Context, __: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.BadParameter("it is reserved: servers of this version know no credentials; leave it out")


def url_option(command: F) -> F:
    """`--url`: where the server is."""
    return click.option(
        "--url",
        envvar=names.ENV_URL,
        show_envvar=True,
        expose_value=False,
        callback=_remember("given_url"),
        help=f"Where the server is; several are separated by commas. Default: {names.DEFAULT_URL}",
    )(command)


def client_options(command: F) -> F:
    """`--url`, `--output` and the reserved `--token`: the options of every command that talks to a server."""
    token = click.option("--token", hidden=True, expose_value=False, callback=_refuse_token)
    return url_option(output_option(token(command)))


def command_said() -> str:
    """The command that runs, as it is typed: `silt config show`."""
    ctx = click.get_current_context(silent=True)
    return "silt" if ctx is None else ctx.command_path


@contextmanager
def needs(extra: Extra, what: str) -> Iterator[None]:
    """Around the imports of an optional part: a missing package becomes a sentence that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == _OWN_PACKAGE:
            raise
        raise ConfigError(
            f"{what} needs the package {missing!r}, which is not installed: pip install 'siltlog[{extra}]'"
        ) from error


def on_terminal() -> bool:
    """Tells whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()
