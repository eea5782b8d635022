"""What a catalog should say of the topics' tables, and what that changes; pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from siltlog.infra.columns import TABLE_SCHEMA

Action = Literal["create", "update", "drop", "keep", "refuse"]

_SPARK = {"int32": "int", "int64": "bigint", "string": "string", "binary": "binary"}
_JSON = {"int": "integer", "bigint": "long"}


class Column(NamedTuple):
    """A column as Spark, and with it Hive's catalogs, write its type."""

    name: str
    type: str


def spark_type(type_: pa.DataType) -> str:
    if pa.types.is_list(type_):
        return f"array<{spark_type(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{','.join(f'{field.name}:{spark_type(field.type)}' for field in type_)}>"
    return "timestamp" if pa.types.is_timestamp(type_) else _SPARK[str(type_)]


def json_type(type_: pa.DataType) -> Any:
    """The type as Delta's log writes it, for catalogs that ask for JSON."""
    if pa.types.is_list(type_):
        return {"type": "array", "elementType": json_type(type_.value_type), "containsNull": True}
    if pa.types.is_struct(type_):
        fields = [
            {"name": field.name, "type": json_type(field.type), "nullable": True, "metadata": {}} for field in type_
        ]
        return {"type": "struct", "fields": fields}
    text = spark_type(type_)
    return _JSON.get(text, text)


COLUMNS = tuple(Column(field.name, spark_type(field.type)) for field in TABLE_SCHEMA)


@dataclass(frozen=True)
class CatalogTable:
    """A table as a catalog has it, or should."""

    name: str
    topic: str
    """The topic, for a table of Siltlog's own; empty for a table of somebody else."""
    root: str
    location: str
    columns: tuple[Column, ...] = COLUMNS


@dataclass(frozen=True)
class Change:
    action: Action
    topic: str
    table: str
    why: str = ""
    wanted: CatalogTable | None = None


def table_name(topic: str) -> str:
    """The name of a topic's table in catalogs, which know lower-case letters, digits and `_` only."""
    return re.sub(r"[^a-z0-9_]", "_", topic.lower())


def changes(
    wanted: Sequence[CatalogTable], found: Iterable[CatalogTable], root: str, kept: set[str] | None
) -> list[Change]:
    """What makes of `found` what is `wanted`.

    Tables of this root whose topic is not among `kept` are dropped; with None nothing is. A table of somebody else, or
    of another root, is never touched, and of two topics with one name neither is told.
    """
    there = {table.name: table for table in found}
    by_name: Mapping[str, list[str]] = defaultdict(list)
    for table in wanted:
        by_name[table.name].append(table.topic)
    made = [_change(table, there.get(table.name), by_name[table.name]) for table in wanted]
    for name, table in sorted(there.items()):
        if kept is not None and table.topic and table.root == root and table.topic not in kept and name not in by_name:
            made.append(Change("drop", table.topic, name))
    return made


def _change(wanted: CatalogTable, there: CatalogTable | None, topics: list[str]) -> Change:
    if len(topics) > 1:
        return Change("refuse", wanted.topic, wanted.name, f"{' and '.join(sorted(topics))} would have one name")
    if there is None:
        return Change("create", wanted.topic, wanted.name, wanted=wanted)
    if not there.topic:
        return Change("refuse", wanted.topic, wanted.name, "a table of this name is there that Siltlog did not make")
    if there.root != wanted.root:
        return Change("refuse", wanted.topic, wanted.name, f"this name has a topic of {there.root}")
    return Change("keep" if there == wanted else "update", wanted.topic, wanted.name, wanted=wanted)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def create_statement(table: CatalogTable, schema: str) -> str:
    """Spark SQL that tells a catalog of a table, whose columns are read from Delta's log."""
    name = ".".join(quoted(part) for part in [*filter(None, schema.split(".")), table.name])
    location = table.location.replace("\\", "\\\\").replace("'", "\\'")
    return f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION '{location}'"
