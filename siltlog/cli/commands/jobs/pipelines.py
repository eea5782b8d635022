"""`silt compact`, `retain`, `vacuum` and `query`: jobs that work on the tables themselves, with no server between."""

import base64
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import click
import msgspec
from click.core import ParameterSource

from siltlog.cli.job_record import Recording, recorded
from siltlog.cli.output import TopicBars, emit, grid, plain, progress, show, waiting
from siltlog.cli.server_options import take_settings
from siltlog.cli.session import EXIT_FAILED, Extra, Session, needs, output_option, pass_session, url_option
from siltlog.infra import names
from siltlog.infra.client.address import run_trigger
from siltlog.infra.errors import ConfigError, SiltlogError, problem_document

if TYPE_CHECKING:
    from siltlog.infra.client.calls import Call
    from siltlog.infra.settings.settings import ServerSettings

F = TypeVar("F", bound=Callable[..., Any])
TABLE_ROWS_MAX = 10_000
HOUR_MS = 3_600_000
ENGINES = {"duckdb": "duckdb", "spark": "pyspark"}
"""What answers a query -> its package; the first that is installed is the default."""
SERVER = "server"
BUSY_MS = 30_000
"""Others who ask make room within so long."""
ANSWER_MS = 40_000
"""A server gives a query up before."""


def location_options(command: F) -> F:
    """`--root` and `--data-dir`: where the tables are, as the server's settings say unless told otherwise."""
    root = click.option("--root", metavar="URI", help=f"Where the tables are.  [{names.ENV_PREFIX}ROOT]")
    data_dir = click.option(
        "--data-dir",
        type=click.Path(path_type=Path),
        help=f"The server's data directory, when the tables are in it.  [{names.ENV_PREFIX}DATA_DIR]",
    )
    return root(data_dir(command))


def place_options(command: F) -> F:
    """`--root`, `--data-dir` and `--output`: the options of every command that works on the tables themselves."""
    return location_options(output_option(command))


def topic_options(command: F) -> F:
    """`--topic`, `--dry-run` and `--url`: the options of jobs, with the server that is told of their runs."""
    topic = click.option("--topic", "-t", "topics", multiple=True, help="Only this topic; repeatable. Default: all.")
    dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
    return topic(dry_run(url_option(command)))


@click.command(epilog="Example:  silt compact --topic events --dry-run")
@topic_options
@place_options
@pass_session
def compact(session: Session, topics: tuple[str, ...], dry_run: bool, root: str | None, data_dir: Path | None) -> int:
    """Merge the small files of the tables into large ones, with Spark; no record changes, no reader notices.

    Where cleanup.policy has "compact", of each key the last record stays with its offset, and those that it supersedes
    go, once enough of them came since the last time.
    """
    settings = place_settings(root, data_dir, "spark")
    with (
        needs("spark", "silt compact"),
        recorded(session, settings, "compact", topics, dry_run) as recording,
        progress() as bar,
    ):
        from siltlog.pipelines.compaction.compact import SCHEDULED_FILES_MIN, compact_topics

        advance = TopicBars(bar, "compacting").advance
        files_min = 1 if run_trigger() == "hand" else SCHEDULED_FILES_MIN
        reports = compact_topics(settings, topics, dry_run=dry_run, progress=advance, files_min=files_min)
        _record(recording, reports, files="merged_files", written_files="written_files", size_bytes="written_bytes")
    columns = ("files_before", "files_after", "bytes_before", "bytes_after", "removed_rows", "seconds")
    return _print_reports(session, "compacted", reports, columns)


@click.command(epilog="Example:  silt retain --topic events --dry-run")
@topic_options
@place_options
@pass_session
def retain(session: Session, topics: tuple[str, ...], dry_run: bool, root: str | None, data_dir: Path | None) -> int:
    """Remove what has expired: records past retention.ms, retention.bytes or retention.records of their topics.

    Whole files of expired records leave the tables, where cleanup.policy has "delete", and the log start moves past
    them. The files themselves stay until silt vacuum.
    """
    settings = place_settings(root, data_dir)
    with (
        needs("server", "silt retain"),
        recorded(session, settings, "retain", topics, dry_run) as recording,
        progress() as bar,
    ):
        from siltlog.pipelines.retention.retain import retain_topics

        advance = TopicBars(bar, "removing from").advance
        reports = retain_topics(settings, topics, dry_run=dry_run, progress=advance)
        _record(recording, reports, files="files", rows="rows", size_bytes="size_bytes")
    for report in reports:
        if report.waiting_files:
            session.output.note(
                f"{report.topic}: {report.waiting_files} expired files stay until a server has written what they say "
                "of producers beside the table"
            )
    return _print_reports(session, "retained", reports, ("files", "rows", "size_bytes", "seconds"))


@click.command(epilog="Example:  silt vacuum --topic events --retention-hours 24 --dry-run")
@topic_options
@click.option(
    "--retention-hours",
    type=click.FloatRange(0),
    help="Keep what was in a table within so many hours. Default, and most: as long as the log remembers.",
)
@place_options
@pass_session
def vacuum(
    session: Session,
    topics: tuple[str, ...],
    dry_run: bool,
    retention_hours: float | None,
    root: str | None,
    data_dir: Path | None,
) -> int:
    """Delete the files that no table names any more, once they are old enough that nobody can be reading them.

    Without --topic also what killed jobs and writers left beside the topics, and the plans of replays that ended a
    month ago: the row, or entry, without a topic.
    """
    settings = place_settings(root, data_dir)
    with needs("server", "silt vacuum"):
        from siltlog.pipelines.retention.vacuum import PERIOD_MS_MAX, vacuum_topics

    retention_ms = PERIOD_MS_MAX if retention_hours is None else round(retention_hours * HOUR_MS)
    with recorded(session, settings, "vacuum", topics, dry_run) as recording, progress() as bar:
        advance = TopicBars(bar, "deleting of").advance
        reports = vacuum_topics(settings, topics, retention_ms=retention_ms, dry_run=dry_run, progress=advance)
        for report in reports:
            recording.took(report.topic, report.error, files=len(report.paths), size_bytes=report.size_bytes)
    return _print_reports(session, "vacuumed", reports, ("files", "size_bytes", "seconds"))


@click.command("query", epilog='Example:  silt query "select string(key), count(*) from events group by 1"')
@click.argument("sql")
@click.option(
    "--engine",
    type=click.Choice((*ENGINES, SERVER)),
    help="Default: server where one is named (--url, --token, --ca, --cert); else duckdb where it is installed, else "
    "spark.",
)
@url_option
@place_options
@pass_session
def query(session: Session, sql: str, engine: str | None, root: str | None, data_dir: Path | None) -> None:
    """Run SQL over the topics: each is a table of its name, as its last commit left it.

    DuckDB answers at once, and takes its own SQL; Spark takes half a minute to start, and Spark SQL. A server answers
    by DuckDB, too, with the records that are in no table yet. The columns are partition, offset, timestamp, key, value
    (both binary: string(value) is their text) and headers.
    """
    given = click.get_current_context().get_parameter_source
    url_given = any(given(name) is ParameterSource.COMMANDLINE for name in ("url", "token", "ca", "cert"))
    if engine is None:
        there = [name for name, package in ENGINES.items() if find_spec(package) is not None]
        engine = SERVER if url_given else next(iter(there), "duckdb")
    if engine == SERVER and (root is not None or data_dir is not None):
        raise click.UsageError("a server knows where its tables are: give --url, or --root and --data-dir")
    if engine != SERVER and url_given:
        raise click.UsageError(f"{engine} reads the tables by itself: leave --url out, or say --engine {SERVER}")
    if engine == SERVER:
        _ask_server(session, sql)
        return
    extra: Extra = "spark" if engine == "spark" else "sql"
    settings = place_settings(root, data_dir, extra)
    with needs(extra, "silt query"), ExitStack() as stack:
        if engine == "spark":
            from siltlog.pipelines.spark.query import query as run_query
        else:
            from siltlog.pipelines.sql.query import query as run_query
        with waiting("starting Spark" if engine == "spark" else "asking DuckDB"):
            result = stack.enter_context(run_query(settings, sql))
        session.output.note("answered by Spark" if engine == "spark" else "answered by DuckDB")
        _print_result(session, result.columns, result.rows)


def _ask_server(session: Session, sql: str) -> None:
    with waiting("asking the server"):
        reply = session.call(_sql_call(sql), BUSY_MS)
    session.output.note("answered by the server")
    # Programs must hear of it, too: what is missing looks like what is not there.
    if not reply["head"]:
        print("silt: the records that are in no table yet are not in the answer", file=sys.stderr)
    columns = reply["columns"]
    binary = [column["type"] == "BLOB" for column in columns]
    rows = (
        tuple(
            cell["base64"] if is_binary and isinstance(cell, dict) else cell
            for cell, is_binary in zip(row, binary, strict=True)
        )
        for row in reply["rows"]
    )
    _print_result(session, [column["name"] for column in columns], rows)
    if reply["cut"]:
        shown = len(reply["rows"])
        print(f"silt: only the first {shown:,} rows: a server gives no more; the tables have all", file=sys.stderr)


def _sql_call(sql: str) -> "Call[dict[str, Any]]":
    from siltlog.infra.client.core import json_request

    request = json_request("POST", "/v1/sql", {"sql": sql}, read_timeout_ms=ANSWER_MS, repeatable=True)
    reply = yield request
    document: dict[str, Any] = reply.json()
    return document


def _print_result(session: Session, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    if session.format == "table":
        _print_rows(session, columns, rows)
        return
    for row in rows:
        cells = [jsonable(value) for value in row]
        if session.format == "json":
            emit(json.dumps(dict(zip(columns, cells, strict=True)), ensure_ascii=False))
        else:
            emit("\t".join(plain(cell) for cell in cells))


def _print_rows(session: Session, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    shown = [[jsonable(value) for value in row] for row in islice(rows, TABLE_ROWS_MAX)]
    numbers = {index for index in range(len(columns)) if all(isinstance(row[index], int | float) for row in shown)}
    keys = [str(index) for index in range(len(columns))]
    table = grid(
        [dict(zip(keys, row, strict=True)) for row in shown],
        keys,
        titles=columns,
        numbers=[keys[index] for index in numbers],
    )
    show(table)
    if next(rows, None) is not None:
        session.output.note(f"only the first {TABLE_ROWS_MAX:,} rows; --output json gives all")


def jsonable(value: Any) -> Any:
    """A value of Spark as JSON has it: bytes as text where they are UTF-8, else base64; times as RFC 3339."""
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): jsonable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return msgspec.to_builtins(value)


def named_settings(root: str | None, data_dir: Path | None, extra: Extra = "server") -> "ServerSettings":
    """Reads the settings; a data directory that is named means the tables in it, whatever `SILT_ROOT` says."""
    if root is None and data_dir is not None:
        root = ""
    return take_settings({"setting_root": root, "setting_data_dir": data_dir}, extra).settings


def place_settings(root: str | None, data_dir: Path | None, extra: Extra = "server") -> "ServerSettings":
    """Raises ConfigError where there are no tables."""
    settings = named_settings(root, data_dir, extra)
    place = urlsplit(settings.root_uri)
    if place.scheme == "file" and not Path(unquote(place.path)).is_dir():
        raise ConfigError(
            f"there are no tables at {settings.root_uri}; name the server's --data-dir, or the tables' --root"
        )
    return settings


def _record(recording: Recording, reports: Sequence[Any], **done: str) -> None:
    """Tells what was done to each topic: `done` names it, and the field of the reports that counts it."""
    for report in reports:
        counts = {name: getattr(report, field) for name, field in done.items()}
        recording.took(report.topic, report.error, **counts)


def _print_reports(session: Session, what: str, reports: Sequence[Any], columns: tuple[str, ...]) -> int:
    """One row or entry per topic; a topic that failed says why, and the command fails."""
    documents = [_document(report) for report in reports]
    for report in reports:
        if report.error is not None:
            session.output.note(f"{report.topic}: {report.error}" if report.topic else str(report.error))
    session.output.document(
        {what: documents},
        value=[report.topic for report in reports if report.error is None and report.topic],
        tables=[grid(documents, ("topic", *columns), numbers=columns)],
    )
    return EXIT_FAILED if any(report.error is not None for report in reports) else 0


def _document(report: Any) -> dict[str, Any]:
    document = {field: getattr(report, field) for field in report.__dataclass_fields__}
    if isinstance(report.error, SiltlogError):
        document["error"] = problem_document(report.error, None)
    if "paths" in document:
        document["files"] = len(document["paths"])
    document["seconds"] = round(document["seconds"], 3)
    return dict(msgspec.to_builtins(document))
