"""A Unity Catalog by the REST interface of its open-source server, /api/2.1/unity-catalog.

https://github.com/unitycatalog/unitycatalog/blob/main/api/all.yaml
"""

import http.client
import json
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from siltlog.infra.columns import TABLE_SCHEMA
from siltlog.infra.errors import ConfigError
from siltlog.pipelines.catalog.plan import CatalogTable, Column, json_type, spark_type

TOPIC = "siltlog.topic"
ROOT = "siltlog.root"
TIMEOUT_S = 30
_PREFIX = "/api/2.1/unity-catalog"
_NAMES = {"int": "INT", "bigint": "LONG", "string": "STRING", "binary": "BINARY", "timestamp": "TIMESTAMP"}


class UnityCatalog:
    """One schema, which must be there: catalogs and schemas have owners. Tables are external ones."""

    def __init__(self, url: str, schema: str, token: str = "") -> None:
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ConfigError(f"{url!r} is no address of a Unity Catalog: write https://host")
        if schema.count(".") != 1 or not all(schema.split(".")):
            raise ConfigError(f"{schema!r} is no schema of a Unity Catalog: write --schema CATALOG.SCHEMA")
        self._url, self._place = url, place
        self._schema, self._token = schema, token

    def tables(self) -> list[CatalogTable]:
        catalog, schema = self._schema.split(".")
        found, page = [], ""
        while True:
            asked = {"catalog_name": catalog, "schema_name": schema, "max_results": "50"}
            reply = self._call("GET", f"/tables?{urlencode({**asked, **({'page_token': page} if page else {})})}")
            found += [_table(entry) for entry in reply.get("tables") or []]
            page = reply.get("next_page_token") or ""
            if not page:
                return found

    def create(self, table: CatalogTable) -> None:
        self._call("POST", "/tables", _entry(table, self._schema))

    def replace(self, table: CatalogTable) -> None:
        """The server changes no table that is there. Dropping an external one leaves its files."""
        self.drop(table.name)
        self.create(table)

    def drop(self, name: str) -> None:
        self._call("DELETE", f"/tables/{quote(f'{self._schema}.{name}')}")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        secure = self._place.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._place.hostname or "", self._place.port, timeout=TIMEOUT_S)
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            target = f"{self._place.path.rstrip('/')}{_PREFIX}{path}"
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            reply = connection.getresponse()
            text = reply.read()
            answer = json.loads(text) if text.strip() else {}
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ConfigError(f"the Unity Catalog at {self._url} cannot be asked: {error}") from error
        finally:
            connection.close()
        if not 200 <= reply.status < 300:
            said = answer.get("message", "") if isinstance(answer, dict) else ""
            what = f"{method} {path.partition('?')[0]}"
            raise ConfigError(f"the Unity Catalog at {self._url} refuses {what} with {reply.status}: {said}")
        return answer if isinstance(answer, dict) else {}


def _entry(table: CatalogTable, schema: str) -> dict[str, Any]:
    catalog, _, name = schema.partition(".")
    return {
        "name": table.name,
        "catalog_name": catalog,
        "schema_name": name,
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "storage_location": table.location,
        "comment": f"Topic {table.topic} of Siltlog",
        "properties": {TOPIC: table.topic, ROOT: table.root},
        "columns": [
            {
                "name": field.name,
                "type_text": spark_type(field.type),
                "type_name": _NAMES.get(spark_type(field.type), "ARRAY"),
                "type_json": json.dumps(
                    {"name": field.name, "type": json_type(field.type), "nullable": True, "metadata": {}}
                ),
                "position": position,
                "nullable": True,
            }
            for position, field in enumerate(TABLE_SCHEMA)
        ],
    }


def _table(entry: dict[str, Any]) -> CatalogTable:
    kept = entry.get("properties") or {}
    columns = sorted(entry.get("columns") or [], key=lambda column: int(column.get("position", 0)))
    return CatalogTable(
        entry["name"],
        kept.get(TOPIC, ""),
        kept.get(ROOT, ""),
        entry.get("storage_location", ""),
        tuple(Column(column["name"], column.get("type_text", "")) for column in columns),
    )
