"""The OpenAPI document against the server that it describes."""

import json
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from http_rig import Http
from jsonschema import Draft202012Validator

from siltlog.infra.errors import KINDS
from siltlog.infra.http.operations import ANYBODY, FILTERED, IN_BODY, Operation
from siltlog.infra.security.callers.sessions import CALLBACK_PATH
from siltlog.ingest.publish.http import GivenHeader, GivenRecord
from siltlog.ingest.records.json_columns import JsonHeader, JsonRecord
from siltlog.openapi.document import document, encoded
from siltlog.server.api import OPERATIONS

STORED = Path(__file__).parents[3] / "docs" / "openapi.json"
PAGE = STORED.with_name("security.md")
NO_SUCH = "no-such-parameter"


@pytest.fixture(scope="module")
def served(http: Http) -> dict[str, Any]:
    reply = http.get("/openapi.json")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    found: dict[str, Any] = reply.json
    return found


def test_the_stored_document_is_made_of_the_code() -> None:
    assert STORED.read_bytes() == encoded(document(OPERATIONS)) + b"\n", (
        "make it again: python -m siltlog.server.api > docs/openapi.json"
    )


def test_every_route_is_described_and_everything_described_is_a_route(served: dict[str, Any]) -> None:
    stored = json.loads(STORED.read_text("utf-8"))
    routes = {(method, path) for path, item in served["paths"].items() for method in item}
    described = {(method, path) for path, item in stored["paths"].items() for method in item}
    assert (routes - described, described - routes) == (set(), set())
    assert served == stored


def test_operation_ids_and_their_names_are_stable() -> None:
    ids = [operation.operation_id for operation in OPERATIONS]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z][a-zA-Z]+", one) for one in ids)


def test_every_reference_leads_somewhere_and_nothing_is_named_in_vain(served: dict[str, Any]) -> None:
    named = set(re.findall(r'"\$ref":\s*"#/components/(\w+/[^"]+)"', json.dumps(served)))
    operations = [operation for item in served["paths"].values() for operation in item.values()]
    named |= {f"securitySchemes/{name}" for operation in operations for one in operation["security"] for name in one}
    there = {f"{kind}/{name}" for kind, entries in served["components"].items() for name in entries}
    assert named == there


@pytest.mark.rule("A8")
@pytest.mark.parametrize("stated", OPERATIONS, ids=lambda stated: stated.operation_id)
def test_each_operation_says_what_it_needs_and_how_it_refuses(served: dict[str, Any], stated: Operation) -> None:
    operation = served["paths"][stated.path][stated.method.lower()]
    assert operation["description"].endswith(f"\n\nNeeds {stated.needed}.")
    assert stated.needs or stated.access not in (IN_BODY, FILTERED), "its handler asks for something"
    is_open = stated.access == ANYBODY
    assert operation["security"] == ([] if is_open else [{"bearer": []}])
    # To log in is for anybody, and refuses a wrong key.
    assert ("401" in operation["responses"]) is (not is_open or "unauthenticated" in stated.errors)
    assert is_open or "forbidden" in operation["responses"]["403"]["$ref"]


@pytest.mark.rule("A8")
def test_the_page_of_security_tells_what_each_operation_needs() -> None:
    table = PAGE.read_text("utf-8").partition("| operation | needs |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE)
    assert rows == [(stated.operation_id, stated.needed) for stated in OPERATIONS], "make it again:\n" + "\n".join(
        f"| `{stated.operation_id}` | {stated.needed} |" for stated in OPERATIONS
    )


def test_the_schemas_are_schemas_whose_examples_fit(served: dict[str, Any]) -> None:
    for path, item in served["paths"].items():
        for method, operation in item.items():
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                schema = {**content["schema"], "components": served["components"]}
                Draft202012Validator.check_schema(schema)
                if "example" in content:
                    Draft202012Validator(schema).validate(content["example"]), (method, path, media)


def test_requests_are_closed_and_replies_open(served: dict[str, Any]) -> None:
    schemas = served["components"]["schemas"]
    closed = {name for name, schema in schemas.items() if schema.get("additionalProperties") is False}
    assert {name for name in schemas if name.endswith("Request") or name.startswith("Given")} <= closed
    assert closed.isdisjoint({"Problem", "Record", "Published", "Topic", "Fetched", "Group", "Cluster"})


@pytest.mark.parametrize(("given", "read"), [(GivenRecord, JsonRecord), (GivenHeader, JsonHeader)])
def test_the_described_record_is_the_one_that_is_read(given: type[msgspec.Struct], read: type[msgspec.Struct]) -> None:
    assert set(given.__struct_fields__) == set(read.__struct_fields__)


def test_every_error_has_a_place(served: dict[str, Any]) -> None:
    named = {code for name in served["components"]["responses"] for code in name.split(".")}
    assert set(KINDS) - named == {"method_not_allowed"}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.operation_id)
def test_the_query_parameters_are_those_that_the_server_takes(http: Http, operation: Any) -> None:
    path = operation.path.format(
        topic="t",
        partition=0,
        group="g",
        member="m",
        producer="p",
        id="i",
        job="retain",
        run_id="r",
        version="v",
        folder="f",
        file="x",
    )
    known: set[str] = set()
    for media in operation.body or {"": None}:
        headers = {"Content_Type": media} if media else {}
        reply = http.call(operation.method, f"{path}?{NO_SUCH}=1", b"" if operation.body else None, **headers)
        if reply.status == 200:
            assert path in ("/healthz", "/readyz", "/metrics"), "who probes may add what it wants"
            return
        if path == CALLBACK_PATH:
            assert reply.error_code == "auth_off", "a provider may add what it wants (RFC 6749, section 4.1.2)"
            return
        assert (reply.status, reply.error_code, reply.json["parameter"]) == (400, "invalid_parameter", NO_SUCH)
        known |= set(reply.json["detail"].rpartition("there are: ")[2].split(", "))
    assert known - {"none"} == {one.name for one in operation.parameters if one.place == "query"}


class _Page(HTMLParser):
    """What a page loads, where it leads, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "link", "img", "iframe"):
            self.loads.append(tag)
        self.ids |= {given["id"] or ""} if "id" in given else set()
        self.links |= {given["href"] or ""} if "href" in given else set()

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_every_operation_and_needs_nothing_else(http: Http, served: dict[str, Any]) -> None:
    reply = http.get("/docs")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    html = reply.body.decode()
    assert "url(" not in html
    page = _Page(html)
    assert page.loads == []
    assert {operation.operation_id for operation in OPERATIONS} <= page.ids
    assert {link.removeprefix("#") for link in page.links} - page.ids == {"openapi.json"}
    for path, item in served["paths"].items():
        assert path in page.text
        for operation in item.values():
            for parameter in operation.get("parameters", ()):
                assert parameter["name"] in page.text
    assert all(code in page.text for code in ("idempotency_key_reused", "wal_full"))


def test_the_document_travels_with_the_package() -> None:
    project = tomllib.loads((STORED.parents[1] / "pyproject.toml").read_text("utf-8"))
    assert document(OPERATIONS)["info"]["version"] == project["project"]["version"]
