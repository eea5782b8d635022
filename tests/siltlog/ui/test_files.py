"""The files of the page: how they are served, and what they may weigh."""

import gzip
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from http_rig import NO_REDIS, Http

from siltlog.testing import running_server
from siltlog.ui.files import CODINGS, first_modules, read_files

STATIC = Path(__file__).parents[3] / "siltlog" / "ui" / "static"
OWN = sorted(path for path in STATIC.glob("*/*.js") if path.parent.name != "vendor")
SCRIPT_BYTES_MAX = 90_000
ALL_SCRIPT_BYTES_MAX = 150_000
STYLE_BYTES_MAX = 12_000
STATED = re.compile(r'from "([^"]+)"')
FETCHED = re.compile(r'import\("([^"]+)"\)')
LICENSED = {"htm-preact": ("htm", "preact"), "uplot": ("uplot",)}


@pytest.fixture(scope="module")
def http() -> Iterator[Http]:
    with running_server(redis_url=NO_REDIS) as server:
        yield Http(server.url)


def test_the_document_is_never_kept_and_its_files_are_for_ever(http: Http) -> None:
    document = http.call("GET", "/ui/")
    assert (document.status, document.headers["cache-control"]) == (200, "no-cache")
    named = re.findall(r'(?:src|href)="([^"]+)"', document.body.decode())
    assert named and not [path for path in named if path.startswith(("/", "http"))], "all are relative"
    for path in named:
        reply = http.call("GET", f"/ui/{path}")
        assert (reply.status, "immutable" in reply.headers["cache-control"]) == (200, True), path


def test_what_a_browser_may_do_is_said_with_each_file(http: Http) -> None:
    version = read_files().version
    for path in ("/ui/", f"/ui/{version}/app/main.js"):
        headers = http.call("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "require-trusted-types-for 'script'" in policy
        assert "unsafe" not in policy
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


@pytest.mark.parametrize("coding", [*CODINGS, "identity"])
def test_files_travel_in_the_coding_that_is_taken(http: Http, coding: str) -> None:
    version = read_files().version
    reply = http.call("GET", f"/ui/{version}/style/page.css", **{"Accept-Encoding": coding})
    assert reply.headers.get("content-encoding", "identity") == coding
    whole = (STATIC / "style" / "page.css").read_bytes()
    assert reply.body == whole
    assert (int(reply.headers["content-length"]) < len(whole)) == (coding != "identity")


@pytest.mark.parametrize("path", ["0/app/main.js", "{version}/app/other.js", "{version}/app/..%2Findex.html"])
def test_other_files_are_not_there(http: Http, path: str) -> None:
    reply = http.call("GET", f"/ui/{path.replace('{version}', read_files().version)}")
    assert (reply.status, reply.error_code) == (404, "not_found")


def test_people_are_sent_to_the_page_and_programs_are_not(http: Http) -> None:
    sent = http.call("GET", "/", Accept="text/html")
    assert (sent.status, sent.headers["location"]) == (303, "ui/")
    assert http.call("GET", "/").json["name"] == "siltlog"


def test_without_the_page_nothing_of_it_is_there() -> None:
    with running_server(redis_url=NO_REDIS, ui="off") as server:
        http = Http(server.url)
        assert http.call("GET", "/ui/").status == 404
        assert http.call("GET", f"/ui/{read_files().version}/app/main.js").status == 404
        assert http.call("GET", "/", Accept="text/html").headers["location"] == "docs"


def test_what_others_wrote_is_as_they_wrote_it_and_licensed() -> None:
    vendor = STATIC / "vendor"
    sums = dict(reversed(line.split()) for line in (vendor / "SHA256SUMS").read_text().splitlines())
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in vendor.iterdir() if path.name in sums}
    assert there == sums
    for path in vendor.glob("*.js"):
        name = path.name.rpartition("-")[0]
        assert all((vendor / f"{part}.LICENSE").exists() for part in LICENSED[name])
        assert path.name in sums


def test_the_page_is_light() -> None:
    """What the overview waits for is light, and so is all that is fetched afterwards."""
    served = {f"{folder}/{name}": shown.codings[""] for (folder, name), shown in read_files().files.items()}
    stated = re.findall(r'src="\{version\}/([^"]+)"', (STATIC / "index.html").read_text())
    first = {*first_modules(served), *stated}
    assert "pages/sql.js" not in first
    assert _weight(served, first) <= SCRIPT_BYTES_MAX
    assert _weight(served, (path for path in served if path.endswith(".js"))) <= ALL_SCRIPT_BYTES_MAX
    assert _weight(served, (path for path in served if path.endswith(".css"))) <= STYLE_BYTES_MAX


def _weight(served: Mapping[str, bytes], paths: Iterable[str]) -> int:
    return sum(len(gzip.compress(served[path])) for path in paths)


def test_scripts_travel_without_what_documents_them() -> None:
    files = read_files().files
    for path in OWN:
        served = files[path.parent.name, path.name].codings[""].decode().splitlines()
        whole = path.read_text().splitlines()
        left = [line for line in whole if line not in served]
        assert not any(re.fullmatch(r"\s*/\*\*((?!\*/).)*(\*/)?\s*", line) for line in served), path
        assert all(re.match(r"\s*(/\*\*|\*)", line) for line in left), path
    for path in (STATIC / "vendor").glob("*.js"):
        assert files["vendor", path.name].codings[""] == path.read_bytes()


@pytest.mark.parametrize("path", OWN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_modules_import_what_is_there_and_make_no_markup(path: Path) -> None:
    text = path.read_text()
    for imported in STATED.findall(text) + FETCHED.findall(text):
        assert (path.parent / imported).is_file(), imported
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|https?://", text)
