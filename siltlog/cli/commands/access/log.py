"""`silt access log`: who changed what, whom it was refused, and whether any of that was touched."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from siltlog.cli.output import emit, grid, printable
from siltlog.cli.records.place import EARLIEST, PLACES, Place, place
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, client_options, needs, pass_session
from siltlog.infra import names
from siltlog.infra.clock import format_us
from siltlog.infra.records import counted

if TYPE_CHECKING:
    from siltlog.consumers.library.record import ConsumerRecord
    from siltlog.infra.security.audit.chain import Anchor, Finding

COLUMNS = ("time", "principal", "operation", "resource", "outcome", "status", "detail", "address", "count")
POLL_RECORDS = 1_000
POLL_MS = 1_000
EPILOG = """\b
Examples:
  silt access log --since 1h
  silt access log --principal key:etl --output json | jq -c '[.time, .operation, .outcome]'
  silt access log --verify --anchor 3fa91c2290aa17de:4711:9c…"""


@click.command(epilog=EPILOG)
@click.option(
    "--since", metavar=PLACES, callback=place(EARLIEST), default=EARLIEST, show_default=True, help="Only from here on."
)
@click.option("--principal", help="Only what this principal did or was refused, such as key:etl.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is recorded from now on, until Ctrl-C.")
@click.option("--verify", is_flag=True, help="Prove that no record was edited, removed, moved or cut off.")
@click.option(
    "--anchor",
    "anchors",
    metavar="CHAIN:SEQ:MAC",
    multiple=True,
    help="For --verify: an end that was noted; repeatable.",
)
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="For --verify: the cluster's secret. Default: that of the server here.",
)
@client_options
@pass_session
def log(
    session: Session,
    since: Place | str,
    principal: str | None,
    follow: bool,
    verify: bool,
    anchors: tuple[str, ...],
    secret_file: Path | None,
) -> int:
    """Print who changed what and whom it was refused, oldest first; needs `read` of `_audit`.

    With --verify every record is checked against the cluster's secret, and each that is wrong is named; exit status 3
    when one is. That the end was cut off shows by an anchor: the server's own, and those that its log has hourly.
    """
    if verify:
        if follow or principal is not None or since != EARLIEST:
            raise click.UsageError("--verify reads the whole log: leave out --since, --principal and --follow")
        return _verify(session, anchors, secret_file)
    if anchors or secret_file is not None:
        raise click.UsageError("--anchor and --secret-file are for --verify")
    found = (
        told for told in map(_told, _records(session, since, follow=follow)) if principal in (None, told["principal"])
    )
    if session.format == "table" and not follow:
        rows = [{**told, "count": told["count"] if told["count"] != 1 else ""} for told in found]
        session.output.document({}, tables=[grid(rows, COLUMNS, numbers=("status", "count"))])
        return 0
    for told in found:
        _print(session, told)
    return 0


def _print(session: Session, told: dict[str, Any]) -> None:
    import msgspec

    if session.format == "json":
        emit(msgspec.json.encode(told).decode())
    else:
        emit("  ".join(printable(told[column]) for column in COLUMNS if told[column] not in ("", None)))


def _told(record: "ConsumerRecord") -> dict[str, Any]:
    import msgspec

    from siltlog.infra.security.audit.chain import told

    try:
        values = told(record.value or b"")
    except ValueError as error:
        raise click.ClickException(f"the record at offset {record.offset} is none of the audit: {error}") from None
    return {**msgspec.structs.asdict(values), "offset": record.offset}


def _records(session: Session, since: Place | str, *, follow: bool) -> "Iterator[ConsumerRecord]":
    """The records from a place on, up to what was there when it began, or for ever."""
    from siltlog.infra.client.record import TopicPartition

    with session.admin() as admin:
        [bounds] = admin.offsets(names.AUDIT_TOPIC)
        start, end = bounds["log_start_offset"], bounds["high_watermark"]
        if isinstance(since, Place) and since.time_us is not None:
            [at] = admin.offsets(names.AUDIT_TOPIC, format_us(since.time_us))
            start = at["offset"]
        elif isinstance(since, Place) and since.offset is not None:
            start = min(max(counted(since.offset, end), start), end)
    if start >= end and not follow:
        return
    with session.consumer(assign=[TopicPartition(names.AUDIT_TOPIC, 0)], auto_offset_reset=EARLIEST) as consumer:
        consumer.seek(names.AUDIT_TOPIC, 0, offset=start)
        while follow or consumer.position(names.AUDIT_TOPIC, 0) < end:
            for record in consumer.poll(POLL_RECORDS, POLL_MS):
                if follow or record.offset < end:
                    yield record


def _verify(session: Session, noted: tuple[str, ...], secret_file: Path | None) -> int:
    from siltlog.infra.client.calls import document_of
    from siltlog.infra.security.audit.chain import PURPOSE, Verifier, read_anchor

    with needs("server", "silt access log --verify"):
        from siltlog.infra.security.secret import read_secret
    key = read_secret(secret_file or _own_secret_file()).key(PURPOSE)
    try:
        anchors = [read_anchor(text) for text in noted]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    end = session.call(document_of("GET", "/v1/access/audit"))["anchor"]
    anchors += [] if end is None else [read_anchor(end)]
    with session.admin() as admin:
        [bounds] = admin.offsets(names.AUDIT_TOPIC)
    verifier = Verifier(key, anchors, from_start=bounds["log_start_offset"] == 0)
    found = [
        finding
        for record in _records(session, EARLIEST, follow=False)
        for finding in verifier.see(record.offset, record.value)
    ]
    found += verifier.end()
    _tell(session, verifier.records, verifier.anchors(), found)
    return EXIT_FOUND_WRONG if found else 0


def _tell(session: Session, records: int, anchors: "list[Anchor]", found: "list[Finding]") -> None:
    rows = [finding._asdict() for finding in found]
    session.output.document(
        {"ok": not found, "records": records, "anchors": [anchor.text() for anchor in anchors], "faults": rows},
        value=[finding.text for finding in found],
        tables=[grid([{"fault": row["fault"], "what": row["text"]} for row in rows], ("fault", "what"))]
        if rows
        else (),
    )
    if not found:
        session.output.note(f"All {records} records are as they were written.")


def _own_secret_file() -> Path:
    """The secret of the server whose settings hold here."""
    from siltlog.cli.server_options import take_settings

    settings = take_settings({}).settings
    return Path(settings.secret_file) if settings.secret_file else settings.data_dir / names.SECRET_FILE
