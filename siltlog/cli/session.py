"""The session of a command: where the server is, how to print, and clients that are made when first needed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from siltlog.infra import names
from siltlog.infra.errors import ConfigError

if TYPE_CHECKING:
    from siltlog.cli.output import Output
    from siltlog.consumers.library.consumer import Consumer
    from siltlog.infra.client.admin import Admin
    from siltlog.infra.client.calls import Call
    from siltlog.infra.client.credentials.credentials import Credentials, Token
    from siltlog.infra.client.transport import Transport
    from siltlog.ingest.library.producer import Producer

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
OutputFormat = Literal["table", "json", "value"]
Extra = Literal["server", "sql", "spark", "demo"]
FORMATS: tuple[OutputFormat, ...] = ("table", "json", "value")
EXIT_FAILED = 1
EXIT_MISUSED = 2
EXIT_FOUND_WRONG = 3
EXIT_INTERRUPTED = 130
RETRY_MS = 1_000
"""A person waits: no longer than this for a server that is away for a moment."""
TOKEN_CHARS_MAX = 64 * 1024
_OWN_PACKAGE = "siltlog"


class Session:
    """The options that hold for one run of `silt`, whichever side of the command's name they were given on."""

    def __init__(self) -> None:
        self.given_url: str | None = None
        self.given_token: Token | None = None
        self.given_ca: str | None = None
        self.given_cert: str | None = None
        self.format: OutputFormat = "table"
        self.debug = False

    @property
    def url(self) -> str:
        """What was said, else the current context's, else the server that was started here by the command's defaults.

        Raises ConfigError where a misspelt variable stands for `SILT_URL`.
        """
        if self.given_url is None:
            from siltlog.cli.place import unsaid_url

            self.given_url = unsaid_url(alone=self.given_token is None)
        return self.given_url

    @property
    def credentials(self) -> "Credentials":
        """The credentials of the command line; a client looks for others by itself."""
        from siltlog.infra.client.credentials.choice import pair_of
        from siltlog.infra.client.credentials.credentials import Credentials

        cert = None if self.given_cert is None else pair_of(self.given_cert)
        return Credentials(self.given_token, self.given_ca, cert)

    def transport(self) -> "Transport":
        from siltlog.infra.client.credentials.authorized import open_transport
        from siltlog.infra.client.endpoints import Endpoints
        from siltlog.infra.clock import SystemClock

        return open_transport(Endpoints(self.url), SystemClock(), self.credentials)

    @property
    def output(self) -> "Output":
        from siltlog.cli.output import Output

        return Output(self.format)

    def admin(self, retry_timeout_ms: int = RETRY_MS) -> "Admin":
        from siltlog.infra.client.admin import Admin

        return Admin(self.url, retry_timeout_ms=retry_timeout_ms, **self.credentials.keywords)

    def at(self, url: str) -> "Session":
        """This session with another node of the same cluster."""
        other = copy(self)
        other.given_url = url
        return other

    def call(self, call: "Call[T]", retry_timeout_ms: int = RETRY_MS) -> T:
        """Makes one call of the API, on a connection of its own."""
        from siltlog.infra.client.endpoints import Endpoints
        from siltlog.infra.client.transport import Caller
        from siltlog.infra.clock import SystemClock

        transport = self.transport()
        try:
            return Caller(Endpoints(self.url), transport, SystemClock(), retry_timeout_ms=retry_timeout_ms).run(call)
        finally:
            transport.close()

    def producer(self) -> "Producer":
        from siltlog.ingest.library.producer import Producer

        return Producer(self.url, **self.credentials.keywords)

    def consumer(self, **arguments: Any) -> "Consumer":
        from siltlog.consumers.library.consumer import Consumer

        return Consumer(self.url, **self.credentials.keywords, **arguments)


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


def _remember_token(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    """`-` is the first line of standard input, `@path` a file that may change; what is read is never shown."""
    if value is None or ctx.resilient_parsing:
        return
    from siltlog.infra.client.credentials.choice import checked_token_file
    from siltlog.infra.client.credentials.credentials import Token, check_token

    try:
        token: Token
        if value.startswith("@"):
            token = checked_token_file(value[1:], "--token")
        elif value == "-":
            # Not a byte more: what follows may be the records.
            token = check_token(sys.stdin.buffer.readline(TOKEN_CHARS_MAX).decode("utf-8", "replace").strip())
        else:
            raise ConfigError(
                "every user of this machine sees the arguments of a command: give - and the token on standard input, "
                f"or @ and a file, or set {names.ENV_TOKEN_FILE}"
            )
    except ConfigError as error:
        raise click.BadParameter(error.detail) from None
    ctx.ensure_object(Session).given_token = token


def url_option(command: F) -> F:
    """`--url`: where the server is; `--token`, `--ca`, `--cert`: who asks, and which server is believed."""
    for name, metavar, callback, said in (
        (
            "--cert",
            "FILE[,KEY]",
            _remember("given_cert"),
            "This client's certificate and its key, in one file or two. Default: SILT_CERT",
        ),
        (
            "--ca",
            "FILE",
            _remember("given_ca"),
            "The authorities that the server's certificate may be of. Default: SILT_CA, else the system's",
        ),
        (
            "--token",
            "-|@FILE",
            _remember_token,
            "Who asks: - reads a line of standard input, @FILE a file. Default: SILT_TOKEN_FILE, SILT_TOKEN, or the "
            "context of `silt login`",
        ),
    ):
        command = click.option(name, metavar=metavar, callback=callback, expose_value=False, help=said)(command)
    return click.option(
        "--url",
        envvar=names.ENV_URL,
        show_envvar=True,
        expose_value=False,
        callback=_remember("given_url"),
        help="Where the server is; several are separated by commas. Default: the context of `silt login`, else "
        f"{names.DEFAULT_URL}",
    )(command)


def client_options(command: F) -> F:
    """`--url`, what goes with it, and `--output`: the options of every command that talks to a server."""
    return url_option(output_option(command))


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
