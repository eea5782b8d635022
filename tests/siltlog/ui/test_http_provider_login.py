"""The login of the page by an identity provider in a real browser."""

from collections.abc import Iterator
from typing import Any

import pytest
from access_rig import Secured, secured_server
from browser import TIMEOUT_MS, chromium, needs_chromium
from identity_provider import IdentityProvider
from session_rig import Visitor

pytestmark = [
    pytest.mark.client,
    pytest.mark.timeout(240),
    needs_chromium,
]


@pytest.fixture(scope="module")
def idp() -> Iterator[IdentityProvider]:
    with IdentityProvider(host="localhost") as idp:
        yield idp


@pytest.fixture(scope="module")
def secured(idp: IdentityProvider) -> Iterator[Secured]:
    # The provider is on another site: `localhost` and `127.0.0.1` are two.
    with secured_server(oidc_issuer=idp.issuer, oidc_client_id="silt-page", oidc_client_secret="hush hush") as secured:
        secured.admin.create("orders")
        secured.admin.publish("orders", {"key": "ada", "value": 1})
        binding = {"principal": "user:ada", "role": "admin"}
        assert secured.admin.json("PUT", "/v1/access/bindings/ada", binding).status == 200
        yield secured


@pytest.fixture
def context(secured: Secured) -> Iterator[Any]:
    with chromium() as browser:
        context = browser.new_context()
        context.set_default_timeout(TIMEOUT_MS)
        yield context
        context.close()


@pytest.mark.rule("A62")
def test_the_provider_lets_in_and_the_page_goes_on_where_it_was(context: Any, secured: Secured) -> None:
    at = context.new_page()
    at.goto(f"{secured.server.url}/ui/#/topics/orders/publish")
    with context.expect_page() as opened:
        at.get_by_role("link", name="log in at localhost").click()
    tab = opened.value
    tab.get_by_placeholder("sub").fill("ada")
    tab.get_by_role("button", name="Authorize").click()
    tab.wait_for_url(f"{secured.server.url}/ui/")
    for each in (tab, at):
        each.locator("summary", has_text="user:ada").wait_for()
        each.get_by_role("dialog").wait_for(state="detached")
    assert at.url.endswith("#/topics/orders/publish")
    names = {cookie["name"].rpartition("_")[0]: cookie["sameSite"] for cookie in context.cookies(secured.server.url)}
    assert names == {"silt_session": "Strict"}, "what the login began with is gone"
    at.get_by_role("textbox", name="JSON").fill('{"item": "tea"}')
    at.get_by_role("button", name="Publish").click()
    at.get_by_text("Acknowledged at").wait_for()
    visitor = Visitor(secured.server.url)
    visitor.cookies = {each["name"]: each["value"] for each in context.cookies(secured.server.url)}
    assert visitor.get("/v1/access/whoami").json["principal"] == "user:ada"


def test_whom_the_provider_refuses_is_told_so(context: Any, secured: Secured) -> None:
    at = context.new_page()
    at.goto(f"{secured.server.url}/ui/")
    with context.expect_page() as opened:
        at.get_by_role("link", name="log in at localhost").click()
    tab = opened.value
    tab.get_by_role("button", name="Deny").click()
    tab.get_by_role("heading", name="Not logged in").wait_for()
    # This provider says it without the state of the login.
    tab.get_by_text("this is the answer to another login").wait_for()
    tab.get_by_role("link", name="To the page").click()
    tab.get_by_role("dialog", name="Log in").wait_for()
