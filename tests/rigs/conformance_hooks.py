"""Loaded into Schemathesis: what it should send, and a note of what was answered."""

import os
import threading
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import schemathesis
from hypothesis import strategies as st

from siltlog.infra import names

ANSWERS = "CONFORMANCE_ANSWERS"
"""Names the file that gets a line for each answer: operation id and status."""
TOPIC, EMPTIED_TOPIC = "flights", "emptied"
MOVED_GROUP, UNUSED_GROUP = "moved", "unused"
"""Groups without members, one to be reset and one to be deleted."""
OWN_KEY, SPARE_KEY = "CONFORMANCE_KEY", "CONFORMANCE_SPARE_KEY"
"""Name the id of the key that the requests have, and of one that may be replaced and revoked."""
PARTITIONS_MAX = 16
ACCESS = "/v1/access/"
_noting = threading.Lock()


def _arrow_stream(values: list[str]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"value": pa.array(values, pa.string())})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


_LINES = st.lists(st.sampled_from(['{"id": 1}', '"text"', "null", "[1.50]", "", "no json"]), max_size=8)
schemathesis.openapi.media_type(names.MEDIA_NDJSON, _LINES.map(lambda lines: "\n".join(lines).encode()))
schemathesis.openapi.media_type(names.MEDIA_BYTES, st.binary(max_size=64))
schemathesis.openapi.media_type(
    names.MEDIA_ARROW, st.lists(st.text(max_size=8), max_size=8).map(_arrow_stream) | st.binary(max_size=64)
)


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Codes may grow within `/v1`; those of this server must all be in its document."""
    closed = _closed(raw_schema)
    raw_schema.clear()
    raw_schema.update(closed)


def _closed(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {"enum" if name == "x-extensible-enum" else name: _closed(value) for name, value in schema.items()}
    return [_closed(value) for value in schema] if isinstance(schema, list) else schema


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Nothing waits for long, nothing is huge, the topic that most calls are about stays, and some calls succeed.

    What is denied, or bounded, is another's: whoever asks goes on asking.
    """
    if case.query and "wait_ms" in case.query:
        case.query["wait_ms"] = "1"
    if case.method == "DELETE" and case.path_parameters.get("topic") == TOPIC:
        case.path_parameters["topic"] = "passing"
    if isinstance(case.body, dict):
        for name, most in (("wait_ms", 1), ("partitions", PARTITIONS_MAX)):
            if isinstance(case.body.get(name), int):
                case.body[name] = min(case.body[name], most)
    if case.path.startswith(ACCESS):
        _about_another(case)
    if case.meta.generation.mode.is_positive:
        _made_possible(case)


def _about_another(case: Any) -> None:
    if case.path_parameters.get("id") == os.environ[OWN_KEY]:
        case.path_parameters["id"] = os.environ[SPARE_KEY]
    if isinstance(case.body, dict):
        for name, another in (("principal", "key:another"), ("topic", "another")):
            if isinstance(case.body.get(name), str):
                case.body[name] = another
    if case.meta.generation.mode.is_positive and "id" in case.path_parameters:
        # There is one of each kind to be taken away, as it is put there before.
        case.path_parameters["id"] = os.environ[SPARE_KEY]
        case.headers.pop("If-Match", None)


def _made_possible(case: Any) -> None:
    """What the document cannot say: which members go together, and what is there."""
    body = case.body
    if case.media_type in (names.MEDIA_BYTES, names.MEDIA_NDJSON):
        case.query = {}
        case.headers = {name: value for name, value in case.headers.items() if name == "Authorization"}
    elif case.method == "DELETE" and case.path.endswith("/records"):
        case.path_parameters |= {"topic": EMPTIED_TOPIC, "partition": 0}
        case.query = {"before_offset": "latest"}
    elif case.method == "DELETE" and case.path == "/v1/groups/{group}":
        case.path_parameters["group"] = UNUSED_GROUP
    elif case.path.endswith("/dlq/discard"):
        case.path_parameters["topic"] = TOPIC
        lowest = {"partition": 0, "first_offset": 0, "last_offset": 0}
        case.body = {"ranges": [lowest], "reason": str(body.get("reason", "")) if isinstance(body, dict) else ""}
    elif case.path == "/v1/sql" and isinstance(body, dict):
        body["sql"] = f"select count(*) from {TOPIC}"
    elif case.path == "/v1/config":
        case.body = {"changes": {"drain_ms": 20_000}}
        case.headers.pop("If-Match", None)
    elif isinstance(body, dict) and "to" in body:
        case.path_parameters["group"] = MOVED_GROUP
        case.body = {"topics": [TOPIC], "to": "latest", "dry_run": bool(body.get("dry_run"))}
    elif isinstance(body, dict) and "topics" in body:
        body |= {"topics": [TOPIC], "topic_pattern": None, "generation": 0, "auto_offset_reset": "earliest"}
        body.pop("commit", None)
        # A member that was there before is refused, and nobody else may commit while a group has one.
        case.path_parameters |= {"group": "readers", "member": str(uuid.uuid4())}
    elif isinstance(body, dict) and "name" in body:
        # For JSON Schema 1.0 is an integer.
        config = {
            name: int(value) if isinstance(value, float) else value for name, value in body.get("config", {}).items()
        }
        body |= {"name": case.path_parameters.get("topic") or str(uuid.uuid4()), "config": config}


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    with _noting, Path(os.environ[ANSWERS]).open("a") as file:
        file.write(f"{case.operation.definition.raw['operationId']} {response.status_code}\n")
