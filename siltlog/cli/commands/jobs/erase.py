"""`silt erase`: every record of a key goes, from everywhere it is kept."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from siltlog.cli.commands.jobs.pipelines import place_options, place_settings
from siltlog.cli.job_record import cluster_id_of, recorded
from siltlog.cli.output import TopicBars, grid, progress, show
from siltlog.cli.session import EXIT_FAILED, EXIT_FOUND_WRONG, Session, needs, pass_session, url_option
from siltlog.infra.client import calls
from siltlog.infra.errors import SiltlogError, problem_document
from siltlog.infra.locations import place_uri

if TYPE_CHECKING:
    from siltlog.infra.settings.settings import ServerSettings
    from siltlog.pipelines.erasure.looking import Left

_START = "start it, then run this again: what it acknowledged is on its disk until it is in the tables"
EPILOG = """\b
Examples:
  silt erase --key customer-42
  silt erase --key customer-42 --topic orders --yes
  printf customer-42 | silt erase --key-file - --yes"""


@click.command(epilog=EPILOG)
@click.option("--key", "-k", help="The key, as text.")
@click.option(
    "--key-file", type=click.File("rb"), help="Read the key from this file, every byte of it; - is standard input."
)
@click.option("--topic", "-t", "topics", multiple=True, help="Only this topic and its dead letters; repeatable.")
@click.option(
    "--backups",
    multiple=True,
    metavar="URI",
    callback=lambda _, __, values: [place_uri(value) for value in values],
    help="Look into the backups at this place, too; repeatable. They are not changed.",
)
@click.option("--yes", "-y", is_flag=True, help="Do it. Without, only what would be done is said.")
@url_option
@place_options
@pass_session
def erase(
    session: Session,
    key: str | None,
    key_file: BinaryIO | None,
    topics: tuple[str, ...],
    backups: list[str],
    yes: bool,
    root: str | None,
    data_dir: Path | None,
) -> int:
    """Erase every record of a key for good, from all topics and their dead letters: the right to be forgotten.

    Says what it would erase; with --yes does it, looks whether anything is left, and names it. Ends with 3 when
    something is.
    """
    wanted = _key(key, key_file)
    settings = place_settings(root, data_dir)
    with (
        needs("server", "silt erase"),
        recorded(session, settings, "erase", topics, not yes) as recording,
        progress() as bar,
    ):
        from siltlog.pipelines.erasure.erase import erase_key

        result = erase_key(
            settings,
            wanted,
            topics,
            backups=backups,
            settle=partial(_settled, session, settings),
            dry_run=not yes,
            progress=TopicBars(bar, "erasing from").advance,
        )
        for report in result.topics:
            counts = {"rows": report.records, "files": report.files, "old_files": report.old_files}
            recording.took(report.topic, report.error, **counts)
        if yes and not result.whole and not any(report.error for report in result.topics):
            recording.found_wrong("the key is still elsewhere: `silt erase` says where")
    return _print(session, result, yes, backups)


def _settled(session: Session, settings: "ServerSettings") -> "list[Left]":
    """Has every node keep what it acknowledged in the tables alone; those that could not, and why."""
    from siltlog.pipelines.erasure.looking import Left

    try:
        cluster = session.call(calls.cluster())
        nodes = session.call(calls.nodes())
    except SiltlogError as error:
        return [Left(session.url, f"the server does not answer: {error.detail}", _START)]
    if cluster["cluster_id"] != cluster_id_of(settings):
        why = f"it is the server of another log than {settings.root_uri}"
        return [Left(session.url, why, "say with --url where the server of these tables is, and run this again")]
    alone = nodes["view"] is None
    left = []
    for node in nodes["nodes"]:
        url = session.url if alone else node["url"]
        if node["state"] == "away" or not url:
            left.append(Left(node["id"], "the node is away, and its write-ahead log may have the key", _START))
            continue
        try:
            said = session.at(url).call(calls.settle())["left"]
        except SiltlogError as error:
            said = [error.detail]
        left += [Left(url, why, "mend that, then run this again") for why in said]
    return left


def _key(key: str | None, key_file: BinaryIO | None) -> bytes:
    if (key is None) == (key_file is None):
        raise click.UsageError("say the key with --key, or with --key-file")
    return key.encode() if key is not None else key_file.read() if key_file is not None else b""


def _print(session: Session, result: Any, yes: bool, backups: list[str]) -> int:
    left = [place for report in result.topics for place in report.left] + result.left
    documents = [
        {
            "topic": report.topic,
            "records": report.records,
            "files": report.files,
            "old_files": report.old_files,
            "seconds": round(report.seconds, 3),
            "error": None if report.error is None else problem_document(report.error, None),
        }
        for report in result.topics
    ]
    shown = [document for document in documents if document["records"] or document["old_files"] or document["error"]]
    columns = ("records", "files", "old_files", "seconds")
    session.output.document(
        {"dry_run": not yes, "erased": documents, "left": [place._asdict() for place in left]},
        value=[report.topic for report in result.topics if report.records or report.old_files],
        tables=[grid(shown, ("topic", *columns), numbers=columns)],
    )
    if session.format == "table" and left:
        rows = [place._asdict() for place in left]
        show(grid(rows, ("place", "what", "remedy"), titles=("PLACE", "WHAT", "WHAT TO DO"), title="\nLeft:"))
    for report in result.topics:
        if report.error is not None:
            session.output.note(f"{report.topic}: {report.error}")
    if not yes:
        session.output.note("nothing was erased: --yes does it")
    if not backups:
        session.output.note("backups were not looked into: --backups names their place")
    if any(report.error is not None for report in result.topics):
        return EXIT_FAILED
    return EXIT_FOUND_WRONG if yes and left else 0
