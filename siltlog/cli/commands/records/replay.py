"""`silt replay`."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from siltlog.cli.commands.jobs.pipelines import place_options, place_settings
from siltlog.cli.job_record import recorded
from siltlog.cli.output import pairs, progress
from siltlog.cli.records.place import EARLIEST, LATEST, PLACES, Place, place
from siltlog.cli.session import Extra, Session, needs, pass_session, url_option

if TYPE_CHECKING:
    from siltlog.pipelines.replay.range import Selection

EPILOG = """\b
Examples:
  silt replay --topic events --into rebuilt --dry-run
  silt replay --topic events --into events --from 2026-11-21T07:00:00Z --until 2026-11-21T08:00:00Z --rate 5000
  silt replay --topic events --into rebuilt --from -100   (the last hundred of each partition)
  silt replay --topic events.dlq --into events --where "string(value) like '%timeout%'"
  silt replay --topic events --into rebuilt --version 12 --key user-7
  silt replay --run 0c4f1a…   (goes on with a run that was cut short)"""


def range_options(command: Any) -> Any:
    """Adds the options that choose records of a topic."""
    options = (
        click.option("--partition", "-p", "partitions", type=click.IntRange(0), multiple=True, help="Only this."),
        click.option(
            "--from",
            "start",
            metavar=f"{EARLIEST}|{PLACES}",
            callback=place(EARLIEST),
            help="From this offset of each partition, -5: so many before its end; or records of this time and later, "
            "1h: so long ago.",
        ),
        click.option(
            "--until",
            "end",
            metavar=f"{LATEST}|{PLACES}",
            callback=place(LATEST),
            help="Before this offset of each partition, or records before this time. Default: what there is now.",
        ),
        click.option("--key", "-k", help="Only records with this key."),
        click.option(
            "--where",
            metavar="SQL",
            help="Only records for which this condition of Spark SQL holds; its columns are those of silt query.",
        ),
        click.option("--version", type=click.IntRange(0), help="What the table held at this older version."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def selection_of(
    partitions: tuple[int, ...],
    start: Place | str | None,
    end: Place | str | None,
    key: str | None,
    where: str | None,
) -> "Selection":
    from siltlog.pipelines.replay.range import Selection

    # A word stands for where the topic begins or ends, as nothing does.
    first, last = (place if isinstance(place, Place) else Place() for place in (start, end))
    return Selection(
        start_offset=first.offset,
        start_us=first.time_us,
        start_said=first.said,
        end_offset=last.offset,
        end_us=last.time_us,
        end_said=last.said,
        key=None if key is None else key.encode(),
        partitions=partitions,
        where=where,
    )


@click.command(epilog=EPILOG)
@click.option("--topic", "-t", help="The topic to read; the dead letters of one are TOPIC.dlq.")
@click.option("--into", help="The topic to publish to; the same one, too.")
@range_options
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="At most so many records a second.")
@click.option("--run", metavar="ID", help="Name the run, or go on with one that was cut short. Default: a new name.")
@click.option("--dry-run", is_flag=True, help="Say what would be read, and publish nothing.")
@place_options
@url_option
@pass_session
def replay(
    session: Session,
    /,
    topic: str | None,
    into: str | None,
    version: int | None,
    rate: float | None,
    run: str | None,
    dry_run: bool,
    root: str | None,
    data_dir: Path | None,
    **chosen: Any,
) -> None:
    """Publish records of --topic again, to --into, each once.

    They are read from the table and published through the server, with headers silt.replay.* that say where each was.
    A run that was cut short goes on with --run and the name that it printed: nothing is published twice.
    """
    if run is None and (topic is None or into is None):
        raise click.UsageError("say which --topic to replay and --into which, or which --run to go on with")
    extra: Extra = "spark" if chosen["where"] else "server"
    settings = place_settings(root, data_dir, extra)
    topics = [topic] if topic else []
    given = {"--root": root, "--data-dir": data_dir}
    tables = "".join(f" {option} {shlex.quote(str(value))}" for option, value in given.items() if value is not None)
    with (
        needs(extra, "silt replay"),
        recorded(session, settings, "replay", topics, dry_run) as recording,
        progress() as bar,
    ):
        from siltlog.pipelines.replay.replay import Request
        from siltlog.pipelines.replay.replay import replay as run_replay

        task = bar.add_task("replaying", total=None)
        asked = Request(topic, into, selection_of(**chosen), version, run, rate)
        report = run_replay(
            settings,
            session.url,
            asked,
            dry_run=dry_run,
            begun=lambda name: session.output.note(
                f"if this is cut short, go on with: silt replay --run {name}{tables}"
            ),
            credentials=session.credentials,
            advance=lambda done, planned: bar.update(task, completed=done, total=planned),
        )
        topics[:] = [report.topic]
        rows = report.rows if dry_run else report.records
        recording.took(report.topic, files=report.files, rows=rows, size_bytes=report.size_bytes)
    document = asdict(report)
    document["seconds"] = round(report.seconds, 3)
    session.output.document(document, value=[report.records], tables=[pairs(document)])
