"""Parameters that reads of all kinds take: what may be seen, how values are written, and whether producers are told."""

from typing import cast

from siltlog.consumers.reading.reader import ISOLATIONS, Isolation
from siltlog.consumers.reading.render import VALUES, Values
from siltlog.infra.http.operations import choice, in_query
from siltlog.infra.http.query import Query

ISOLATION_PARAMETER = in_query(
    "isolation", "`table`: only what is in the Delta table.", choice(*ISOLATIONS, default="wal")
)
VALUES_PARAMETER = in_query(
    "values",
    "How values are written: `text`, or base64 where they are none; `json`: embedded where they are JSON.",
    choice(*VALUES, default="text"),
)
PRODUCERS_PARAMETER = in_query(
    "producers",
    "`true`: each record says in `producer` who published it. What is in the table is then read from there.",
    choice("true", "false", default="false"),
)


def isolation_of(query: Query) -> Isolation:
    return cast(Isolation, query.choice("isolation", ISOLATIONS, "wal"))


def values_of(query: Query) -> Values:
    return cast(Values, query.choice("values", VALUES, "text"))


def producers_of(query: Query) -> bool:
    return query.choice("producers", ("true", "false"), "false") == "true"
