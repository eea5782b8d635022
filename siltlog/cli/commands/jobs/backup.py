"""`silt backup` and `silt restore`: topics, offsets of groups and who may do what, to another root and back."""

from pathlib import Path
from typing import Any

import click
import msgspec

from siltlog.cli.commands.jobs.audit import any_partition_option, document_of, exit_code, print_findings
from siltlog.cli.commands.jobs.pipelines import named_settings, place_options, place_settings, topic_options
from siltlog.cli.job_record import recorded
from siltlog.cli.output import TopicBars, grid, progress
from siltlog.cli.records.place import moment
from siltlog.cli.session import EXIT_FAILED, Session, needs, on_terminal, pass_session, url_option
from siltlog.infra.errors import problem_document
from siltlog.infra.locations import place_uri

_LOCATION_HELP = "A folder, or s3://bucket/prefix."


def _location(_: click.Context, __: click.Parameter, value: str) -> str:
    return place_uri(value)


@click.command(epilog="Example:  silt backup --to s3://backups/siltlog")
@click.option("--to", "target", metavar="URI", required=True, callback=_location, help=_LOCATION_HELP)
@click.option(
    "--keep", type=click.IntRange(1), metavar="NUMBER", help="Then remove all but the newest so many backups."
)
@topic_options
@place_options
@pass_session
def backup(
    session: Session,
    target: str,
    keep: int | None,
    topics: tuple[str, ...],
    dry_run: bool,
    root: str | None,
    data_dir: Path | None,
) -> int:
    """Copy topics, their settings and the offsets of groups to another place, while servers and jobs go on.

    Only what earlier backups there do not have is copied, and each of them can be restored. What a server has not
    flushed to the tables yet (flush.ms) is not in it.
    """
    settings = place_settings(root, data_dir)
    with (
        needs("server", "silt backup"),
        recorded(session, settings, "backup", topics, dry_run) as recording,
        progress() as bar,
    ):
        from siltlog.pipelines.backup.backup import backup_topics

        result = backup_topics(
            settings, target, topics, keep=keep, dry_run=dry_run, progress=TopicBars(bar, "copying").advance
        )
        for report in result.topics:
            recording.took(
                report.topic,
                report.error,
                files=report.files,
                rows=report.rows,
                size_bytes=report.size_bytes,
                copied_files=report.copied_files,
                copied_bytes=report.copied_bytes,
            )
    documents = [_row(report) for report in result.topics]
    columns = ("files", "rows", "size_bytes", "copied_files", "copied_bytes", "seconds")
    session.output.document(
        {
            "backup_id": result.backup_id,
            "taken_at": result.taken_at,
            "dry_run": dry_run,
            "backed_up": documents,
            "pruned": msgspec.to_builtins(result.pruned),
        },
        value=[] if result.backup_id is None else [result.backup_id],
        tables=[grid(documents, ("topic", *columns), numbers=columns)],
    )
    if result.backup_id is not None:
        session.output.note(f"backup {result.backup_id}, as of {result.taken_at}")
    if result.pruned is not None and result.pruned.backups:
        were = "would be" if dry_run else "were"
        session.output.note(f"{result.pruned.backups} older backups and {result.pruned.files} files {were} removed")
    if result.not_pruned is not None:
        session.output.note(f"older backups stay: {result.not_pruned}")
    return _told(session, result.topics)


@click.command(epilog="Example:  silt restore --from s3://backups/siltlog --root s3://lake/restored")
@click.option("--from", "source", metavar="URI", required=True, callback=_location, help=_LOCATION_HELP)
@click.option(
    "--at",
    "at_us",
    metavar="TIME|AGO",
    callback=moment,
    help="The newest backup taken by then; 1h: an hour ago. Default: the newest.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--topic", "-t", "topics", multiple=True, help="Only this topic; repeatable. Default: all.")
@click.option("--keys", is_flag=True, help="API keys too, with those that were revoked since the backup.")
@any_partition_option
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@url_option
@place_options
@pass_session
def restore(
    session: Session,
    source: str,
    at_us: int | None,
    yes: bool,
    topics: tuple[str, ...],
    keys: bool,
    any_partition: tuple[str, ...],
    dry_run: bool,
    root: str | None,
    data_dir: Path | None,
) -> int:
    """Make the topics of a backup anew where they never were, and audit them.

    Topics keep their ids, offsets, settings and producers, groups where they go on. Who may do what comes too, where
    the secret of the cluster is at hand (SILT_SECRET_FILE). Nothing that is there is overwritten: a root that has any
    of the topics is refused. Start the server afterwards, with a new data directory.
    Ends with 3 when the audit finds something wrong. With --dry-run it is of the backup itself, read whole.
    """
    if keys and topics:
        raise click.UsageError("--keys comes with the whole backup: leave out --topic")
    settings = named_settings(root, data_dir)
    with needs("server", "silt restore"):
        from siltlog.pipelines.backup.restore import find_backup, restore_topics

    manifest = find_backup(settings, source, at_us)
    if not yes and not dry_run:
        what = f"{len(topics) or len(manifest.topics)} topics as of {manifest.taken_at} to {settings.root_uri}"
        if not on_terminal():
            raise click.UsageError(f"restoring {what} cannot ask here; say so with --yes")
        click.confirm(f"Restore {what}?", abort=True, err=True)
    with recorded(session, settings, "restore", topics, dry_run) as recording, progress() as bar:
        advance = TopicBars(bar, "restoring").advance
        result = restore_topics(
            settings,
            source,
            manifest,
            topics,
            keys=keys,
            any_partition=any_partition,
            dry_run=dry_run,
            progress=advance,
        )
        for report in result.topics:
            recording.took(
                report.topic, report.error, files=report.files, rows=report.rows, size_bytes=report.size_bytes
            )
        wrong = [report.topic for report in result.topics if report.audit is not None and report.audit.findings]
        if wrong:
            recording.found_wrong(f"what the backup has of {', '.join(wrong)} is not whole: `silt audit` says what")
    audits = [report.audit for report in result.topics if report.audit is not None]
    documents = [
        _row(report) | {"audit": None if report.audit is None else document_of(report.audit)}
        for report in result.topics
    ]
    rows = [{**one, "audit": (one["audit"] or {}).get("verdict", "not read")} for one in documents]
    columns = ("files", "rows", "size_bytes", "seconds")
    session.output.document(
        {
            "backup_id": result.backup_id,
            "taken_at": result.taken_at,
            "dry_run": dry_run,
            "groups_left_out": result.groups_left_out,
            "lacking": manifest.failed,
            "access": msgspec.to_builtins(result.access),
            "restored": documents,
        },
        value=[report.topic for report in result.topics if report.error is None],
        tables=[grid(rows, ("topic", "audit", *columns), numbers=columns)],
    )
    print_findings(session, audits)
    if manifest.failed:
        session.output.note(
            f"the backup lacks {', '.join(manifest.failed)}, which could not be read when it was taken: an older one "
            "may have them (--at, --topic)"
        )
    if result.groups_left_out:
        session.output.note("the root has offsets of groups of its own: those of the backup were left out")
    if result.access is not None:
        session.output.note(_access_note(result.access, dry_run))
    return _told(session, result.topics) or exit_code(audits)


def _access_note(access: Any, dry_run: bool) -> str:
    if access.left_out:
        return f"who may do what was left out: {access.left_out}"
    were = "would be" if dry_run else "were"
    grants = access.bindings + access.entries + access.quotas
    kept = f"; {access.keys_left_out} API keys were left out (--keys)" if access.keys_left_out else ""
    return f"{grants} grants and quotas and {access.keys} API keys {were} restored{kept}"


def _row(report: Any) -> dict[str, Any]:
    fields = {name: getattr(report, name) for name in report.__dataclass_fields__ if name != "audit"}
    error = None if report.error is None else problem_document(report.error, None)
    return dict(msgspec.to_builtins({**fields, "error": error, "seconds": round(report.seconds, 3)}))


def _told(session: Session, reports: Any) -> int:
    for report in reports:
        if report.error is not None:
            session.output.note(f"{report.topic}: {report.error}")
    return EXIT_FAILED if any(report.error is not None for report in reports) else 0
