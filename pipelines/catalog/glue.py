"""AWS Glue's Data Catalog, by boto3: as Athena, Trino, EMR and Redshift read Delta tables of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from siltlog.infra.errors import ConfigError
from siltlog.pipelines.catalog.plan import CatalogTable, Column

TOPIC = "siltlog.topic"
ROOT = "siltlog.root"


class GlueCatalog:
    """One database, which the first table makes where it is not there. Keys come by boto3's own chain."""

    def __init__(self, database: str, region: str | None) -> None:
        import boto3

        self._database = database
        with _ours(database):
            self._glue: Any = boto3.Session(region_name=region or None).client("glue")

    def tables(self) -> list[CatalogTable]:
        with _ours(self._database):
            pages = self._glue.get_paginator("get_tables").paginate(DatabaseName=self._database)
            try:
                return [_table(entry) for page in pages for entry in page["TableList"]]
            except self._glue.exceptions.EntityNotFoundException:
                return []

    def create(self, table: CatalogTable) -> None:
        with _ours(self._database):
            try:
                self._glue.create_table(DatabaseName=self._database, TableInput=_entry(table))
            except self._glue.exceptions.EntityNotFoundException:
                self._glue.create_database(DatabaseInput={"Name": self._database, "Description": "Topics of Siltlog"})
                self._glue.create_table(DatabaseName=self._database, TableInput=_entry(table))

    def replace(self, table: CatalogTable) -> None:
        with _ours(self._database):
            self._glue.update_table(DatabaseName=self._database, TableInput=_entry(table), SkipArchive=True)

    def drop(self, name: str) -> None:
        with _ours(self._database):
            self._glue.delete_table(DatabaseName=self._database, Name=name)


def _entry(table: CatalogTable) -> dict[str, Any]:
    """`table_type` is what Athena goes by, `spark.sql.sources.provider` what Spark and Trino do."""
    return {
        "Name": table.name,
        "Description": f"Topic {table.topic} of Siltlog",
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {
            "EXTERNAL": "TRUE",
            "classification": "delta",
            "table_type": "DELTA",
            "spark.sql.sources.provider": "delta",
            TOPIC: table.topic,
            ROOT: table.root,
        },
        "PartitionKeys": [],
        "StorageDescriptor": {
            "Location": table.location,
            "Columns": [{"Name": column.name, "Type": column.type} for column in table.columns],
            "InputFormat": "org.apache.hadoop.mapred.SequenceFileInputFormat",
            "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
            "SerdeInfo": {
                "SerializationLibrary": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
                "Parameters": {"path": table.location, "serialization.format": "1"},
            },
        },
    }


def _table(entry: dict[str, Any]) -> CatalogTable:
    parameters, stored = entry.get("Parameters", {}), entry.get("StorageDescriptor", {})
    columns = tuple(Column(column["Name"], column.get("Type", "")) for column in stored.get("Columns", []))
    topic, root = parameters.get(TOPIC, ""), parameters.get(ROOT, "")
    return CatalogTable(entry["Name"], topic, root, stored.get("Location", ""), columns)


@contextmanager
def _ours(database: str) -> Iterator[None]:
    """Foreign errors become ConfigError; that a database is not there is left to the caller."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        told = error.response.get("Error", {})
        said = f"{told.get('Code', '')}: {told.get('Message', '')}"
        raise ConfigError(f"AWS Glue refuses {error.operation_name} in database {database!r}: {said}") from error
    except BotoCoreError as error:
        raise ConfigError(f"AWS Glue cannot be asked: {error}") from error
