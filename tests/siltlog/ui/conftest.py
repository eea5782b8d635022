"""A browser, a server, and its page; a file that wants another server or page has one of its own, of the same name."""

from collections.abc import Iterator
from typing import Any

import pytest
from access_rig import Secured, secured_server
from browser import Page, chromium, opened
from http_rig import Http

from siltlog.server_process import ServerProcess
from siltlog.testing import running_server


# No wider: while Playwright has a loop in a thread no test of that thread can run another.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=200) as server:
        yield server


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with secured_server() as secured:
        yield secured


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Http:
    return Http(server.url)


@pytest.fixture
def page(browser: Any, server: ServerProcess) -> Iterator[Page]:
    with opened(browser, server) as page:
        yield page
