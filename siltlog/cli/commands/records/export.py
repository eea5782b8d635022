"""`silt export`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from siltlog.cli.commands.jobs.pipelines import place_options, place_settings
from siltlog.cli.commands.records.replay import range_options, selection_of
from siltlog.cli.job_record import recorded
from siltlog.cli.output import pairs, progress
from siltlog.cli.session import Extra, Session, needs, pass_session, url_option

FORMATS = ("parquet", "ndjson", "csv", "delta")
COMPRESSIONS = ("none", "gzip", "zstd")
TEXT_FORMATS = ("ndjson", "csv")
EPILOG = """\b
Examples:
  silt export --topic events --to backup/events --format ndjson --compression zstd
  silt export --topic events --to s3://bucket/events --format parquet --from 2026-11-21T00:00:00Z
  silt export --topic events --to /data/events --format delta --dry-run"""


@click.command(epilog=EPILOG)
@click.option("--topic", "-t", required=True, help="The topic to write.")
@click.option("--to", required=True, metavar="FOLDER|URI", help="Where to: a folder, or s3://bucket/prefix.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="parquet", show_default=True)
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="none", help="Of NDJSON and CSV.")
@range_options
@click.option("--dry-run", is_flag=True, help="Say what would be read, and write nothing.")
@place_options
@url_option
@pass_session
def export(
    session: Session,
    /,
    topic: str,
    to: str,
    form: Any,
    compression: Any,
    version: int | None,
    dry_run: bool,
    root: str | None,
    data_dir: Path | None,
    **chosen: Any,
) -> None:
    """Write what the table of --topic has to files: Parquet, record objects as NDJSON, CSV, or a Delta table.

    silt import takes NDJSON, CSV and Parquet back. An export that was cut short goes on when it is repeated; each
    file is there once it is whole.
    """
    if compression != "none" and form not in TEXT_FORMATS:
        raise click.UsageError("--compression is for ndjson and csv; the others are compressed by themselves")
    extra: Extra = "spark" if chosen["where"] else "server"
    settings = place_settings(root, data_dir, extra)
    with (
        needs(extra, "silt export"),
        recorded(session, settings, "export", [topic], dry_run) as recording,
        progress() as bar,
    ):
        from siltlog.cli.records.export_text import texts
        from siltlog.pipelines.export.export import Asked
        from siltlog.pipelines.export.export import export as run_export

        task = bar.add_task(f"exporting {topic}", total=None)
        report = run_export(
            settings,
            Asked(topic, to, form, compression, selection_of(**chosen), version),
            texts(),
            dry_run=dry_run,
            advance=lambda done, planned: bar.update(task, completed=done, total=planned),
        )
        if dry_run:
            recording.took(topic, files=report.files, rows=report.rows, size_bytes=report.size_bytes)
        else:
            recording.took(topic, files=report.written_files, rows=report.records, size_bytes=report.written_bytes)
        if report.present_files and not report.written_files:
            session.output.note(
                f"{report.to} has this export whole, of version {report.version} of the table; what came since needs "
                "a place of its own"
            )
    document = asdict(report)
    document["seconds"] = round(report.seconds, 3)
    session.output.document(document, value=[report.records], tables=[pairs(document)])
