"""`silt catalog`: the topics' tables in catalogs, where others find them by name."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from siltlog.cli.commands.jobs.pipelines import place_options, place_settings
from siltlog.cli.job_record import recorded
from siltlog.cli.output import emit, grid
from siltlog.cli.session import EXIT_FAILED, Session, needs, pass_session, url_option
from siltlog.infra.errors import ConfigError

if TYPE_CHECKING:
    from siltlog.infra.settings.settings import ServerSettings

JOB = "catalog"
DONE = {"create": "created", "update": "updated", "drop": "dropped", "keep": "kept", "refuse": "refused"}
EPILOG = """\b
Examples:
  silt catalog register --glue logs
  silt catalog register --unity https://unity.example --schema main.logs --token-file unity.token
  silt catalog register --sql --schema logs | spark-sql"""


@click.group()
def catalog() -> None:
    """The topics' tables in catalogs, where Athena, Trino, Spark and others find them by name."""


@catalog.command(epilog=EPILOG)
@click.option("--glue", metavar="DATABASE", help="A database of AWS Glue; it is made where it is not there.")
@click.option("--region", help="The region of Glue. Default: that of the bucket, or as AWS is told.")
@click.option("--unity", metavar="URL", help="A Unity Catalog; with --schema CATALOG.SCHEMA, which must be there.")
@click.option("--token-file", type=click.Path(path_type=Path), help="The file with the token for the Unity Catalog.")
@click.option("--sql", is_flag=True, help="Print CREATE TABLE for Spark, as for a Hive metastore; change nothing.")
@click.option("--schema", default="", metavar="NAME", help="The schema for --unity, or for --sql.")
@click.option("--topic", "-t", "topics", multiple=True, help="Only this topic, and drop nothing; repeatable.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@url_option
@place_options
@pass_session
def register(
    session: Session,
    glue: str | None,
    region: str | None,
    unity: str | None,
    token_file: Path | None,
    sql: bool,
    schema: str,
    topics: tuple[str, ...],
    dry_run: bool,
    root: str | None,
    data_dir: Path | None,
) -> int:
    """Tell a catalog of the topics' tables: make what is lacking, put right what differs, drop what has no topic.

    Without --glue, --unity and --sql it is the catalog that the settings name (SILT_CATALOG_GLUE, SILT_CATALOG_UNITY),
    which the schedule tells each hour. It may be run again at any time. Tables that Siltlog did not make are never
    touched. Ends with 1 when a topic could not be told.
    """
    if [bool(glue), bool(unity), sql].count(True) > 1:
        raise click.UsageError("Say which catalog: one of --glue, --unity and --sql.")
    settings = place_settings(root, data_dir)
    if sql:
        return _print_statements(session, settings, schema, topics)
    if not (glue or unity or settings.catalog_glue or settings.catalog_unity):
        raise click.UsageError(
            "Say which catalog: one of --glue, --unity and --sql, or set SILT_CATALOG_GLUE or SILT_CATALOG_UNITY."
        )
    with needs("server", "silt catalog"), recorded(session, settings, JOB, topics, dry_run) as recording:
        from siltlog.pipelines.catalog.opening import catalog_of, glue_catalog, unity_catalog
        from siltlog.pipelines.catalog.register import register_topics

        if glue:
            place = glue_catalog(settings, glue, region or "")
        elif unity:
            place = unity_catalog(unity, schema, token_file)
        else:
            place = catalog_of(settings)
        done = register_topics(settings, place, topics, dry_run=dry_run)
        for change in done:
            if change.action == "refuse":
                recording.took(change.topic, ConfigError(change.why))
            elif change.action != "keep":
                recording.took(change.topic, **{DONE[change.action]: 1})
    rows = [
        {
            "topic": change.topic,
            "table": change.table,
            "outcome": change.action if dry_run else DONE[change.action],
            "why": change.why,
        }
        for change in done
    ]
    session.output.document(
        {"tables": rows},
        value=[change.table for change in done if change.action not in ("keep", "refuse")],
        tables=[grid(rows, ("topic", "table", "outcome", "why"))],
    )
    return EXIT_FAILED if any(change.action == "refuse" for change in done) else 0


def _print_statements(session: Session, settings: "ServerSettings", schema: str, topics: tuple[str, ...]) -> int:
    with needs("server", "silt catalog"):
        from siltlog.pipelines.catalog.register import statements

        made, left_out = statements(settings, schema, topics)
    for statement in made:
        emit(f"{statement};")
    for change in left_out:
        session.output.note(f"{change.topic}: {change.why}")
    return EXIT_FAILED if left_out else 0
