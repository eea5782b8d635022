"""`silt audit`: reads what is stored and says what is wrong with it."""

from pathlib import Path
from typing import Any

import click
import msgspec

from siltlog.cli.commands.jobs.pipelines import place_options, place_settings, topic_options
from siltlog.cli.job_record import recorded
from siltlog.cli.output import TopicBars, grid, progress, show
from siltlog.cli.session import EXIT_FAILED, EXIT_FOUND_WRONG, Session, needs, pass_session
from siltlog.infra.errors import problem_document

any_partition_option = click.option(
    "--any-partition",
    "any_partition",
    multiple=True,
    metavar="TOPIC",
    help="Do not check its keys: its publishers choose partitions themselves. Repeatable.",
)


@click.command(epilog="Example:  silt audit --topic events")
@topic_options
@any_partition_option
@place_options
@pass_session
def audit(
    session: Session,
    topics: tuple[str, ...],
    dry_run: bool,
    any_partition: tuple[str, ...],
    root: str | None,
    data_dir: Path | None,
) -> int:
    """Read everything that is stored, and prove that it is whole and true.

    No offset is missing or there twice, none is out of order, every key is in the partition that its hash names, every
    checksum fits, and what the log says of a file is what is in it. Of topics whose partitioner is murmur2 keys
    elsewhere are only warned of. Changes nothing. Ends with 3 when something is wrong.
    """
    settings = place_settings(root, data_dir)
    with (
        needs("server", "silt audit"),
        recorded(session, settings, "audit", topics, dry_run) as recording,
        progress() as bar,
    ):
        from siltlog.pipelines.audit.audit import audit_topics

        advance = TopicBars(bar, "auditing").advance
        reports = audit_topics(settings, topics, dry_run=dry_run, any_partition=any_partition, progress=advance)
        for report in reports:
            recording.took(
                report.topic, report.error, files=report.files, rows=report.rows, size_bytes=report.size_bytes
            )
        wrong = [report.topic for report in reports if report.findings]
        if wrong:
            recording.found_wrong(f"something is wrong in {', '.join(wrong)}: `silt audit` says what")
    print_reports(session, reports)
    return exit_code(reports)


def print_reports(session: Session, reports: Any) -> None:
    """A row for each topic, then each thing that is wrong; as JSON `audited`, as values what is wrong."""
    documents = [document_of(report) for report in reports]
    columns = ("partitions", "files", "rows", "size_bytes", "seconds")
    session.output.document(
        {"audited": documents},
        value=[finding.detail for report in reports for finding in report.findings],
        tables=[grid(documents, ("topic", "verdict", *columns), numbers=columns)],
    )
    print_findings(session, reports)


def print_findings(session: Session, reports: Any) -> None:
    """Prints the findings for a person."""
    if session.format != "table":
        return
    findings, warnings = (
        [
            {"topic": report.topic, "kind": finding.kind, "detail": finding.detail}
            for report in reports
            for finding in getattr(report, told)
        ]
        for told in ("findings", "warnings")
    )
    found = {finding["kind"] for finding in (*findings, *warnings)}
    for title, rows in (("\nWrong:", findings), ("\nMay be wrong:", warnings)):
        if rows:
            show(grid(rows, ("topic", "kind", "detail"), title=title))
    if found:
        from siltlog.pipelines.audit.findings import REMEDIES

        remedies = [{"kind": kind, "remedy": remedy} for kind, remedy in REMEDIES.items() if kind in found]
        show(grid(remedies, ("kind", "remedy"), titles=("KIND", "WHAT TO DO")))
    for report in reports:
        if report.error is not None:
            session.output.note(f"{report.topic}: {report.error}")
        if report.findings_left_out:
            session.output.note(f"{report.topic}: {report.findings_left_out} more are not shown")


def exit_code(reports: Any) -> int:
    if any(report.findings for report in reports):
        return EXIT_FOUND_WRONG
    return EXIT_FAILED if any(report.error is not None for report in reports) else 0


def document_of(report: Any) -> dict[str, Any]:
    verdict = "clean" if report.clean else "wrong" if report.findings else "not read"
    document = {"topic": report.topic, "verdict": "not read" if report.dry_run else verdict}
    document |= {name: getattr(report, name) for name in report.__dataclass_fields__}
    document["seconds"] = round(report.seconds, 3)
    document["error"] = None if report.error is None else problem_document(report.error, None)
    return dict(msgspec.to_builtins(document))
