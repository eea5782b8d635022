"""The command `silt`: its commands, how errors are printed, and the exit codes.

0 done · 1 failed · 2 misused · 3 ran and found something wrong · 130 interrupted. A closed pipe is 0.
"""

import importlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from siltlog.cli.session import EXIT_FAILED, EXIT_INTERRUPTED, FORMATS, OutputFormat, Session, output_option
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, Unauthenticated, UnknownTopic, problem_document
from siltlog.infra.redaction import HidingFormatter, Redaction, hide_in_tracebacks, redacted

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: dict[str, tuple[str, str]] = {
    "init": (
        "commands.node.init:init",
        "Set up a server here: asks what it needs to know, tries it, and writes its files.",
    ),
    "serve": ("commands.node.serve:serve", "Run a server until it is told to stop."),
    "stop": (
        "commands.node.stop:stop",
        "Stop the server of a data directory of this machine, and wait until it has ended.",
    ),
    "demo": (
        "commands.node.demo:demo",
        "Send a year of real flights through the whole system, and kill the server in the middle.",
    ),
    "health": (
        "commands.node.health:health",
        "Ask each server of --url whether it can acknowledge records; exit status 3, with each reason, when none can.",
    ),
    "ping": (
        "commands.node.ping:ping",
        "Ask each server of --url whether it is there, and how long that takes: nothing is tried again.",
    ),
    "topic": ("commands.topics.topic:topic", "Create, list, describe, change and delete topics."),
    "node": ("commands.node.node:node", "The nodes that share a root: list them, drain one, take one out of the list."),
    "drain": (
        "commands.node.drain:drain",
        "Have the server that is asked take no publishes and flush, as before an upgrade; its next start takes them "
        "again.",
    ),
    "cluster": (
        "commands.node.cluster:cluster",
        "Nodes that share a root, as a whole: how it is, balance, and its end.",
    ),
    "publish": (
        "commands.records.publish:publish",
        "Publish records to TOPIC: VALUES one each, the lines of standard input with `-`, or a --file.",
    ),
    "consume": ("commands.records.consume:consume", "Print the records of TOPIC, in order within each partition."),
    "search": (
        "commands.records.search:search",
        "Find records of TOPIC by key, text, header, producer or member of JSON values; the server looks through them.",
    ),
    "group": (
        "commands.groups.group:group",
        "Consumer groups: who reads what, how far behind, and from where they go on.",
    ),
    "dlq": (
        "commands.records.dlq:dlq",
        "Dead letters: records that a group gave up on, each with where it was and why.",
    ),
    "stranded": (
        "commands.records.stranded:stranded",
        "Acknowledged records that never came into a table, because another server went on with their partition.",
    ),
    "access": (
        "commands.access.access:access",
        "Manage who may do what: API keys, roles, and entries that allow or deny.",
    ),
    "compact": (
        "commands.jobs.pipelines:compact",
        "Merge the small files of the tables into large ones, with Spark; no record changes, no reader notices.",
    ),
    "retain": (
        "commands.jobs.pipelines:retain",
        "Remove what has expired: records past retention.ms, retention.bytes or retention.records of their topics.",
    ),
    "vacuum": (
        "commands.jobs.pipelines:vacuum",
        "Delete the files that no table names any more, once they are old enough that nobody can be reading them.",
    ),
    "replay": ("commands.records.replay:replay", "Publish records of --topic again, to --into, each once."),
    "export": (
        "commands.records.export:export",
        "Write what the table of --topic has to files: Parquet, record objects as NDJSON, CSV, or a Delta table.",
    ),
    "import": (
        "commands.records.import_files:import_files",
        "Publish the records of files: of folders all of them, in the order of their names.",
    ),
    "audit": ("commands.jobs.audit:audit", "Read everything that is stored, and prove that it is whole and true."),
    "backup": (
        "commands.jobs.backup:backup",
        "Copy topics, their settings and the offsets of groups to another place, while servers and jobs go on.",
    ),
    "restore": (
        "commands.jobs.backup:restore",
        "Make the topics of a backup anew where they never were, and audit them.",
    ),
    "erase": (
        "commands.jobs.erase:erase",
        "Erase every record of a key for good, from all topics and their dead letters: the right to be forgotten.",
    ),
    "catalog": (
        "commands.jobs.catalog:catalog",
        "The topics' tables in catalogs, where Athena, Trino, Spark and others find them by name.",
    ),
    "schedule": (
        "commands.jobs.schedule:schedule",
        "Run the jobs at their times, until it is told to stop, for servers that have SILT_SCHEDULE=off.",
    ),
    "jobs": (
        "commands.jobs.jobs:jobs",
        "Show when jobs run next, and what their last runs did; run one now, or stop it.",
    ),
    "query": (
        "commands.jobs.pipelines:query",
        "Run SQL over the topics: each is a table of its name, as its last commit left it.",
    ),
    "login": (
        "commands.contexts.login:login",
        "Keep a server's address and a token for it, so that the other commands need to be told neither.",
    ),
    "context": ("commands.contexts.context:context", "The servers that were logged in to, and which of them is meant."),
    "config": (
        "commands.node.config:config",
        "The settings of a server: show them, change them while it runs, check them, begin a file of them.",
    ),
    "doctor": (
        "commands.node.doctor:doctor",
        "Look for what is wrong, and say what mends it; exit status 3 when something is.",
    ),
    "top": (
        "commands.node.top:top",
        "Watch what is published and consumed: rates, files, what tables do not have yet, how far groups are behind.",
    ),
    "profile": (
        "commands.node.profile:profile",
        "Ask a server what it is at: where its threads are, what its memory grows by, or what its tasks wait for.",
    ),
    "bench": (
        "commands.node.bench:bench",
        "Measure the server from here: how fast it is published to and read from, and how soon records arrive.",
    ),
    "completion": ("completion:completion", "Print what makes a shell complete commands, options and their values."),
}
"""Each command has its module and attribute in this package, and the first sentence of its help.

A module is imported when its command is asked for: `silt --help` and a shell that completes a name import none.
"""

LOGGING = ("serve", "schedule")
"""The commands that log by themselves, and whose log is their business."""
UNREACHABLE = "unreachable"
EPILOG = """\b
First steps:
  silt init                                     answer a few questions (or begin without, with the defaults)
  silt serve                                    start a server here
  silt topic create events --partitions 4
  silt publish events '{"hello": "world"}'
  silt consume events
  silt demo                                     the whole system at work, in under three minutes"""


class _Listing(click.Group):
    """The commands by name and first sentence, without their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return click.Command(cmd_name, help=COMMANDS[cmd_name][1]) if cmd_name in COMMANDS else None


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"siltlog.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            # click looks among the commands that were imported.
            from siltlog.infra.settings.suggestion import did_you_mean

            ctx.fail(f"No such command {name!r}{did_you_mean(name, COMMANDS) or '.'}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _Listing().format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        listing = _Listing(add_help_option=False)
        named = listing.shell_complete(click.Context(listing), incomplete)
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # before click makes a failure of it
            return _closed_pipe()


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="siltlog", prog_name="silt")
@output_option
@click.option("--debug", is_flag=True, help="Show where an error came from.")
@click.pass_context
def silt(ctx: click.Context, debug: bool) -> None:
    """A log that settles into Delta: publish over HTTP, consume in order, query as tables."""
    ctx.ensure_object(Session).debug = debug
    if ctx.invoked_subcommand not in LOGGING:
        _take_logs(debug)


def _take_logs(debug: bool) -> None:
    """Warnings of our libraries become sentences; what others log (py4j: tracebacks on Ctrl-C) is for --debug."""
    handler = logging.StreamHandler()
    handler.setFormatter(HidingFormatter("silt: %(message)s", Redaction()))
    handler.setLevel(logging.WARNING)
    if not debug:
        handler.addFilter(logging.Filter("siltlog"))
    logging.basicConfig(handlers=[handler], force=True)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command line and ends the process with its exit code."""
    hide_in_tracebacks(Redaction())
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Runs one command line; returns its exit code."""
    session = Session()
    session.format = _asked_format(arguments)  # a command line that cannot be parsed is an error to be printed, too
    try:
        result = silt.main(list(arguments), prog_name="silt", standalone_mode=False, obj=session)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        return _closed_pipe()
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        return _misused(error, session)
    except Exception as error:
        if session.debug:
            raise
        if isinstance(error, UnicodeError) and (no_text := _no_text(arguments)) is not None:
            return _misused(click.UsageError(no_text), session)
        return _failed(error, session)


def _no_text(arguments: Sequence[str]) -> str | None:
    """What is wrong with the first argument that has bytes which are no text; None where none has."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            return f"{argument!r} is not UTF-8, as names and values are here; other bytes come by `-` or a --file"
    return None


def _asked_format(arguments: Sequence[str]) -> OutputFormat:
    joined = [argument.partition("=") for argument in arguments]
    for index, (option, equals, value) in enumerate(joined):
        if option in ("--output", "-o"):
            given = value if equals else "".join(arguments[index + 1 : index + 2])
            return next((format_ for format_ in FORMATS if format_ == given), "table")
    return "table"


def _misused(error: click.ClickException, session: Session) -> int:
    said = redacted(error.format_message())
    if session.format == "json":
        _print_problem(SiltlogError(said, error_code="invalid_parameter", status=400), session)
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        # Its sentence is the whole help, which begins with what any other misuse is told before its sentence.
        click.echo(said, err=True)
    elif isinstance(error, click.UsageError):
        click.UsageError(said, error.ctx).show()
    else:
        click.ClickException(said).show()
    return error.exit_code


def _failed(error: Exception, session: Session) -> int:
    """Prints a sentence, or the problem document."""
    if not isinstance(error, SiltlogError):
        error = _foreign(error)
    elif error.error_code == UNREACHABLE:
        error.detail = f"no server answers at {session.url}; start one with `silt serve`, or say where it is by --url"
    elif (
        isinstance(error, UnknownTopic)
        and error.request_id
        and (topic := error.members.get("topic"))
        and not names.is_system_topic(topic)
    ):
        meant = _topic_meant(topic, session)
        error.detail = f"there is no topic {topic!r}{meant or ';'} create it with `silt topic create {topic}`"
    elif isinstance(error, Unauthenticated):
        error.detail = f"{error.detail}; `silt login` keeps a token, SILT_TOKEN_FILE and --token name one"
    _print_problem(error, session)
    return EXIT_FAILED


def _topic_meant(topic: str, session: Session) -> str:
    """`; did you mean 'orders'?`, as far as the server says what there is."""
    from siltlog.infra.settings.suggestion import did_you_mean

    try:
        with session.admin() as admin:
            return did_you_mean(topic, [document["name"] for document in admin.topics()])
    except SiltlogError:
        return ""


def _foreign(error: Exception) -> SiltlogError:
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return SiltlogError(f"{where}{error.strerror or error}")
    return SiltlogError(
        f"{type(error).__name__}: {error} (a defect of Siltlog; `silt --debug …` shows where, please report it)"
    )


def _print_problem(error: SiltlogError, session: Session) -> None:
    if session.format == "json":
        document: dict[str, Any] = problem_document(error, error.request_id)
        print(json.dumps(document, ensure_ascii=False, default=str), file=sys.stderr)
        return
    request = f" (request {error.request_id})" if error.request_id else ""
    print(f"silt: {redacted(error.detail)}{request}", file=sys.stderr)


def _closed_pipe() -> int:
    """The reader of our output has gone: nothing is wrong, and nothing more may be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
