"""The policies of terraform/, and an S3 that enforces them: a proxy on loopback before a real S3 server.

It asks the policies as IAM does: an action, the ARN it is about, and for listings the prefix. What they do not allow is
403 AccessDenied; the rest goes on as it came, Host included, so that signatures hold.
https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazons3.html
"""

import http.client
import re
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import hcl2

FOLDER = Path(__file__).parents[2] / "terraform"
Statement = Mapping[str, Any]


def plain(node: Any, known: Mapping[str, str]) -> Any:
    """hcl2's tree without its quotes and marks, references to `known` names resolved."""
    if isinstance(node, dict):
        return {plain(key, known): plain(value, known) for key, value in node.items() if not key.startswith("__")}
    if isinstance(node, list):
        return [plain(item, known) for item in node]
    if isinstance(node, str):
        text = node.removeprefix('"').removesuffix('"')
        return re.sub(r"\$\{([^{}]+)\}", lambda match: known.get(match[1], match[0]), text)
    return node


def parse(text: str, known: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = plain(_tree(text), known)
    return found


@cache
def _tree(text: str) -> Any:
    return hcl2.loads(text)


def names_of(bucket: str, prefix: str) -> dict[str, str]:
    """What the policies refer to, for a root."""
    root = f"arn:aws:s3:::{bucket}/{prefix}"
    return {
        "aws_s3_bucket.lake.arn": f"arn:aws:s3:::{bucket}",
        "local.root": root,
        "local.topics": f"{root}/topics",
        "var.prefix": prefix,
    }


def blocks(parsed: dict[str, Any], kind: str, of: str) -> dict[str, dict[str, Any]]:
    """Name -> body of every `kind "of" "name"`."""
    found = {}
    for block in parsed.get(kind, []):
        found.update(block.get(of, {}))
    return found


def statements(project: dict[str, Any], policy: str, values: Sequence[Mapping[str, str]] = ()) -> list[dict[str, Any]]:
    """Every statement of a policy document and of those it builds on; the conditional ones as they stand, or once for
    each of `values` where those are what they are for."""
    documents = blocks(project, "data", "aws_iam_policy_document")
    document = documents[policy]
    found = list(document.get("statement", []))
    for dynamic in document.get("dynamic", []):
        content = dynamic["statement"]["content"]
        if values and str(dynamic["statement"]["for_each"]) in ("var.journals", "${var.journals}"):
            continue  # there are none elsewhere
        if values and "var.places" in str(dynamic["statement"]["for_each"]):
            found += [
                plain(statement, {f"statement.value.{name}": text for name, text in value.items()})
                for value in values
                for statement in content
            ]
        else:
            found += content
    for source in document.get("source_policy_documents", []):
        match = re.search(r"aws_iam_policy_document\.(\w+)\.json", source)
        assert match is not None
        found += statements(project, match[1], values)
    return found


class Asked(NamedTuple):
    """What a request asks the policies for."""

    action: str
    resource: str
    prefix: str | None = None
    """What a listing is of."""

    def __str__(self) -> str:
        return f"{self.action} on {self.resource}" + (f" ({self.prefix})" if self.prefix else "")


def asked_by(method: str, target: str, copy_source: str | None = None, body: bytes = b"") -> list[Asked]:
    """Lists what a path-style request asks for."""
    parts = urlsplit(target)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    query = {name: found[0] for name, found in parse_qs(parts.query, keep_blank_values=True).items()}
    arn = f"arn:aws:s3:::{bucket}"
    if not key:
        if "delete" in query:
            keys = [found.text or "" for found in ElementTree.fromstring(body).iter() if found.tag.endswith("Key")]
            return [Asked("s3:DeleteObject", f"{arn}/{each}") for each in keys]
        for name, action in (("location", "s3:GetBucketLocation"), ("uploads", "s3:ListBucketMultipartUploads")):
            if name in query:
                return [Asked(action, arn)]
        return [Asked("s3:ListBucket", arn, query.get("prefix", ""))]
    action = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "DELETE": "s3:DeleteObject"}.get(method, "s3:PutObject")
    if method == "DELETE" and "uploadId" in query:
        action = "s3:AbortMultipartUpload"
    found = [Asked(action, f"{arn}/{key}")]
    if copy_source:
        found.append(Asked("s3:GetObject", f"arn:aws:s3:::{unquote(copy_source).lstrip('/')}"))
    return found


def allows(policy: Sequence[Statement], asked: Asked) -> Statement | None:
    """The statement that allows it (IAM's `*` spans folders)."""
    for statement in policy:
        if asked.action not in statement["actions"]:
            continue
        if not any(fnmatchcase(asked.resource, pattern) for pattern in statement["resources"]):
            continue
        for condition in statement.get("condition", []):
            assert (condition["test"], condition["variable"]) == ("StringLike", "s3:prefix"), condition
        patterns = [value for condition in statement.get("condition", []) for value in condition["values"]]
        if not patterns or any(fnmatchcase(asked.prefix or "", pattern) for pattern in patterns):
            return statement
    return None


@dataclass
class Policed:
    """An S3 endpoint. What was asked of it, and refused, is kept; `policy` may change meanwhile."""

    endpoint: str
    policy: list[Statement]
    allowed: set[tuple[str, str]] = field(default_factory=set)
    """Actions that were allowed, each by which pattern of resources."""
    denied: list[Asked] = field(default_factory=list)
    denied_actions: set[str] = field(default_factory=set)
    """Refused whatever the policy says."""
    reason: str = "AccessDenied"
    """The code that refusals have."""
    written: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """Objects that were begun, in parts or in one, each with the header fields of its request, in small letters."""

    def refuses(self, asked: Asked) -> bool:
        statement = None if asked.action in self.denied_actions else allows(self.policy, asked)
        if statement is None:
            self.denied.append(asked)
            return True
        pattern = next(each for each in statement["resources"] if fnmatchcase(asked.resource, each))
        self.allowed.add((asked.action, pattern))
        return False


@contextmanager
def policed(upstream: str, policy: Sequence[Statement]) -> Iterator[Policed]:
    """The S3 server at `upstream` behind `policy`."""
    host = urlsplit(upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # a body goes out after its headers

        def _answer(self) -> None:
            body = self._body()
            asked = asked_by(self.command, self.path, self.headers.get("x-amz-copy-source"), body)
            if any(found.refuses(each) for each in asked):
                self._deny()
                return
            query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
            if asked[0].action == "s3:PutObject" and not {"partNumber", "uploadId"} & query.keys():
                fields = {name.lower(): value for name, value in self.headers.items()}
                found.written.append((asked[0].resource.partition("/")[2], fields))
            connection = http.client.HTTPConnection(host, timeout=60)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in ("expect", "connection", "transfer-encoding", "content-length"):
                        connection.putheader(name, value)
                if body or self.command in ("PUT", "POST"):
                    connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body or None)
                reply = connection.getresponse()
                content = reply.read()
            finally:
                connection.close()
            listing = Asked("s3:ListBucket", asked[0].resource.partition("/")[0], asked[0].resource.partition("/")[2])
            if reply.status == 404 and asked[0].action == "s3:GetObject" and found.refuses(listing):
                # Who may not list is not told that there is nothing.
                self._deny()
                return
            self.send_response(reply.status)
            for name, value in reply.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                    self.send_header(name, value)
            length = reply.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return b"".join(parts)

        def _deny(self) -> None:
            content = f"<Error><Code>{found.reason}</Code><Message>no policy allows it</Message></Error>".encode()
            self.send_response(403)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Policed(f"http://127.0.0.1:{server.server_address[1]}", list(policy))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
