"""`silt catalog`: the topics' tables in catalogs, where others find them by name."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from siltlog.cli.commands.jobs.pipelines import place_options, place_settings
from siltlog.cli.output import emit, grid
from siltlog.cli.session import EXIT_FAILED, Session, needs, pass_session
from siltlog.infra.errors import ConfigError
from siltlog.infra.secret_file import read_secret

if TYPE_CHECKING:
    from siltlog.pipelines.catalog.register import Catalog

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

    It may be run again at any time. Tables that Siltlog did not make are never touched. Ends with 1 when a topic could
    not be told.
    """
    if [bool(glue), bool(unity), sql].count(True) != 1:
        raise click.UsageError("Say which catalog: one of --glue, --unity and --sql.")
    settings = place_settings(root, data_dir)
    with needs("server", "silt catalog"):
        from siltlog.pipelines.catalog.register import register_topics, statements

        if sql:
            made, left_out = statements(settings, schema, topics)
            for statement in made:
                emit(f"{statement};")
            for change in left_out:
                session.output.note(f"{change.topic}: {change.why}")
            return EXIT_FAILED if left_out else 0
        if glue and not settings.root_uri.startswith("s3://"):
            raise ConfigError(f"what reads tables of AWS Glue reads S3, and the root is {settings.root_uri}")
        place = _catalog(glue, region or settings.s3_region, unity, schema, token_file)
        done = register_topics(settings, place, topics, dry_run=dry_run)
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


def _catalog(
    glue: str | None, region: str | None, unity: str | None, schema: str, token_file: Path | None
) -> "Catalog":
    if glue:
        from siltlog.pipelines.catalog.glue import GlueCatalog

        return GlueCatalog(glue, region)
    from siltlog.pipelines.catalog.unity import UnityCatalog

    token = ""
    if token_file is not None:
        try:
            token = read_secret(token_file)
        except ValueError as error:
            raise ConfigError(f"--token-file {token_file}: {error}") from None
    return UnityCatalog(unity or "", schema, token)
