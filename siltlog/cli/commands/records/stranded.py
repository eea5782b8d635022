"""`silt stranded`: acknowledged records that never came into a table, because another server took it over."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from siltlog.cli.commands.jobs.pipelines import named_settings, place_settings
from siltlog.cli.commands.records.publish import producer_of, publication_of
from siltlog.cli.output import grid, publish_progress
from siltlog.cli.session import Session, client_options, output_option, pass_session
from siltlog.infra import names
from siltlog.infra.client.rate import Pace
from siltlog.infra.clock import SystemClock, format_us, parse_us
from siltlog.infra.errors import SiltlogError, UnknownTopic, problem

if TYPE_CHECKING:
    from siltlog.cli.records.stranded import StrandedFile

F = TypeVar("F", bound=Callable[..., Any])
LIST_COLUMNS = ("file", "topic", "partition", "first_offset", "last_offset", "records", "published_to")
PUBLISH_COLUMNS = ("file", "topic", "count", "already_published")
LIST_EPILOG = """\b
Examples:
  silt stranded list
  silt stranded list --data-dir /var/lib/siltlog --output json
  silt stranded list --root s3://bucket/log"""
PUBLISH_EPILOG = """\b
Examples:
  silt stranded publish --all
  silt stranded publish orders/0b6ce8e0-9b0e-4b5a-8d3c-2f1f7e1e9f00/0-9012445012-3.arrow
  silt stranded publish --all --to orders-found
  silt stranded publish --all --root s3://bucket/log"""


def _place_options(command: F) -> F:
    data_dir = click.option(
        "--data-dir",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help=f"The data directory that has them, of a server that is alone.  [{names.ENV_PREFIX}DATA_DIR]",
    )
    root = click.option(
        "--root",
        metavar="URI",
        help="The root of a cluster, which has those of all its nodes. Default: "
        f"that of the settings, where {names.ENV_PREFIX}CLUSTER is on.  [{names.ENV_PREFIX}ROOT]",
    )
    return root(data_dir(command))


@click.group()
def stranded() -> None:
    """Acknowledged records that never came into a table, because another server went on with their partition.

    A server sets them aside in its data directory when it starts and finds that; a node of a cluster, in the root, as
    soon as it finds it.
    """


@stranded.command("list", epilog=LIST_EPILOG)
@_place_options
@output_option
@pass_session
def list_(session: Session, root: str | None, data_dir: Path | None) -> None:
    """List the files of stranded records in a data directory, or of all nodes of a cluster. It needs no server."""
    folder, files = _files(root, data_dir)
    documents = [_document(file) for file in files]
    if not documents:
        session.output.note(f"there are no stranded records in {folder}")
    session.output.document(
        {"folder": folder, "stranded": documents},
        value=[document["file"] for document in documents],
        tables=[grid(documents, LIST_COLUMNS, numbers=("partition", "first_offset", "last_offset", "records"))],
    )


@stranded.command(epilog=PUBLISH_EPILOG)
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every file that was not published yet.")
@click.option("--to", metavar="TOPIC", help="Publish to this topic. Default: the one they were acknowledged for.")
@click.option("--by-key", is_flag=True, help="Place records by their keys, not in the partitions they were in.")
@click.option(
    "--acks", type=click.Choice(("written", "wal", "object", "table")), help="When a record counts as published."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="At most so many records a second.")
@click.option("--yes", is_flag=True, help="Publish also where key compaction will keep them for newer records.")
@_place_options
@client_options
@pass_session
def publish(
    session: Session,
    files: tuple[str, ...],
    everything: bool,
    to: str | None,
    by_key: bool,
    acks: str | None,
    rate: float | None,
    yes: bool,
    root: str | None,
    data_dir: Path | None,
) -> None:
    """Publish stranded records through a server: each once, also when this is cut short and repeated.

    Keys, values, headers and timestamps are as they were; offsets are new. The files stay where they are.
    """
    if bool(files) == everything:
        raise click.UsageError("name the files to publish, as `silt stranded list` shows them, or say --all")
    folder, found = _files(root, data_dir)
    chosen = [file for file in found if everything or file.name in files]
    absent = set(files) - {file.name for file in chosen}
    if absent:
        raise problem("not_found", f"there is no {min(absent)} in {folder}; `silt stranded list` shows what there is")
    pace = Pace(rate, SystemClock())
    published: list[dict[str, Any]] = []
    for file in chosen:
        if everything and file.publishing is not None and file.publishing.published_at is not None:
            continue
        target = to or file.topic
        expiration_ms = _checked_topic(session, file, target, own=to is None, yes=yes)
        keeps = to is None and not by_key
        count, already = _publish(session, file, target, keeps, acks, pace, expiration_ms, begun=bool(published))
        published.append({"file": file.name, "topic": target, "count": count, "already_published": already})
    if not published:
        session.output.note(f"there is nothing in {folder} that was not published")
    session.output.document(
        {"published": published},
        value=[sum(entry["count"] for entry in published)],
        tables=[grid(published, PUBLISH_COLUMNS, numbers=("count", "already_published"))],
    )


def _files(root: str | None, data_dir: Path | None) -> tuple[str, list["StrandedFile"]]:
    """The files, and the folder that they are in."""
    if root is not None and data_dir is not None:
        raise click.UsageError("stranded records are in a --data-dir, or below the --root of a cluster: name one")
    from siltlog.cli.records.stranded import StrandedFolder, stranded_files
    from siltlog.infra.store.store import open_store

    if root is not None or (data_dir is None and named_settings(None, None).cluster == "on"):
        settings = place_settings(root, None)
        store = open_store(settings.root_uri, **settings.s3_options())
        folder = StrandedFolder(store, names.SHARED_STRANDED_FOLDER)
    else:
        place = named_settings(None, data_dir).data_dir.absolute()
        if not place.is_dir():
            return str(place / names.STRANDED_FOLDER), []
        folder = StrandedFolder(open_store(place.as_uri()), names.STRANDED_FOLDER)
    return folder.shown, stranded_files(folder)


def _document(file: "StrandedFile") -> dict[str, Any]:
    rows = file.read()
    offsets = rows.column("offset")
    noted = file.publishing
    return {
        "file": file.name,
        "topic": file.topic,
        "topic_id": file.topic_id,
        "partition": file.partition,
        "first_offset": offsets[0].as_py(),
        "last_offset": offsets[-1].as_py(),
        "records": rows.num_rows,
        "size_bytes": file.size_bytes,
        "published_to": None if noted is None or noted.published_at is None else noted.topic,
        "published_at": None if noted is None else noted.published_at,
    }


def _checked_topic(session: Session, file: "StrandedFile", target: str, *, own: bool, yes: bool) -> int:
    """How long the topic remembers a producer that says nothing, in ms. Raises what speaks against publishing there."""
    if names.is_system_topic(target):
        raise problem(
            "forbidden", f"{file.name}: {target} is the system's, and nobody else publishes to it; say where --to"
        )
    with session.admin() as admin:
        try:
            topic = admin.topic(target)
        except UnknownTopic:
            raise problem(
                "unknown_topic", f"{file.name}: there is no topic {target}; create it, or publish --to another one"
            ) from None
    if own and topic["topic_id"] != file.topic_id:
        raise problem(
            "unknown_topic",
            f"{file.name}: the topic {target} that these records were acknowledged for was deleted; the one of that "
            f"name is another. Say --to {target} if they are to go there all the same",
        )
    config = topic["config"]
    if "compact" in str(config["cleanup.policy"]["value"]) and not yes:
        raise problem(
            "invalid_request",
            f"{file.name}: {target} keeps the last record of each key, and these may be older than what it has of "
            "their keys: publish them --to another topic, or say --yes",
        )
    return int(config["producer.expiration.ms"]["value"])


def _publish(
    session: Session,
    file: "StrandedFile",
    target: str,
    keeps_partitions: bool,
    acks: str | None,
    pace: Pace,
    expiration_ms: int,
    *,
    begun: bool,
) -> tuple[int, int]:
    """How many records were published, and how many had been."""
    from siltlog.cli.records.stranded import Publishing
    from siltlog.infra.client.bodies.chunks import chunked
    from siltlog.infra.client.resumable import Stopped

    clock = SystemClock()
    noted = file.publishing if file.publishing is not None and file.publishing.topic == target else None
    rows = file.read()
    if noted is not None and noted.published_at is not None:
        return 0, rows.num_rows
    records = rows.drop_columns(["offset"] if keeps_partitions else ["offset", "partition"])
    producer_id = producer_of(file.mark(), target, keeps_partitions)
    with (
        publication_of(session, target, acks, pace, producer_id, begun=begun, stored=True) as publication,
        publish_progress(target, rows.num_rows) as show,
    ):
        if noted is None:
            noted = Publishing(target, format_us(clock.now_us()))
            file.note(noted)
        elif publication.resumed_record < 0 and clock.now_us() - parse_us(noted.begun_at) > expiration_ms * 1000:
            raise problem(
                "invalid_request",
                f"{file.name} was begun to be published to {target} at {noted.begun_at}, and the topic no longer knows "
                "how far that came (producer.expiration.ms): compare them with what is there; --to publishes them to "
                "another topic",
            )
        done = 0
        try:
            for chunk in chunked(iter([records])):
                for count in publication.publish(chunk):
                    pace.wait(count)
                    show(publication.count, publication.already, done)
                done += chunk.num_rows
        except Stopped as stopped:
            raise _refused(file, stopped.error, done + stopped.row, rows) from stopped
        file.note(Publishing(target, noted.begun_at, format_us(clock.now_us())))
        return publication.count, publication.already


def _refused(file: "StrandedFile", error: SiltlogError, row: int, rows: Any) -> SiltlogError:
    offset = rows.column("offset")[row].as_py()
    error.detail = (
        f"{file.name}: the record at offset {offset} was refused ({error.detail}); those before it are published"
    )
    return error
