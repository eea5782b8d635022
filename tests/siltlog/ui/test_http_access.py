"""The page Access in a real browser: it shows and changes what /v1 says, and has the secret of a key nowhere else."""

from collections.abc import Iterator
from typing import Any

import pytest
from access_rig import As, Secured, as_caller
from browser import Page, needs_chromium, opened
from http_rig import NO_REDIS

from siltlog.testing import running_server

HOSTILE = 'user:<img src=x onerror="window.hurt = 1">'
EVERYWHERE = """[location.href, document.documentElement.outerHTML, JSON.stringify(history.state),
    ...Object.values(localStorage), ...Object.values(sessionStorage)].join()"""
pytestmark = [pytest.mark.client, pytest.mark.timeout(300), needs_chromium]


@pytest.fixture
def page(browser: Any, secured: Secured) -> Iterator[Page]:
    with as_caller(browser, secured, secured.admin) as page:
        yield page


def document(secured: Secured) -> dict[str, Any]:
    found: dict[str, Any] = secured.admin.get("/v1/access").json
    return found


def column(at: Any, table: str, title: str) -> list[str]:
    at.get_by_role("region", name=table).wait_for()
    found: list[str] = at.locator(f'td[data-title="{title}"]').all_inner_texts()
    return found


def taken(at: Any) -> str:
    """The key that the page shows; the window is closed then."""
    token: str = at.get_by_label("The key", exact=True).inner_text()
    at.get_by_role("button", name="I have kept it").click()
    at.get_by_role("dialog").wait_for(state="detached")
    return token


def test_a_key_is_made_used_rotated_and_revoked(page: Page, secured: Secured) -> None:
    url = secured.server.url
    at = page.go("access")
    at.get_by_role("button", name="New key").click()
    at.get_by_label("Name", exact=True).fill("shop")
    at.get_by_label("For names that begin with").fill("orders")
    at.get_by_role("button", name="as curl").click()
    asked = at.get_by_role("dialog", name="The same without this page")
    assert "/v1/access/keys" in asked.locator("pre").inner_text()
    asked.get_by_role("button", name="Close").click()
    at.get_by_role("button", name="Make it").click()
    first = taken(at)
    who = As(url, first).get("/v1/access/whoami").json
    assert (who["principal"], who["roles"][0]["role"], who["roles"][0]["prefix"]) == ("key:shop", "producer", "orders")
    left = at.evaluate(EVERYWHERE)
    assert first not in left
    at.get_by_role("cell", name="shop", exact=True).wait_for()
    assert column(at, "Keys", "Name") == [key["name"] for key in document(secured)["keys"]]

    at.get_by_role("button", name="Rotate shop").click()
    at.get_by_label("The old one counts for").select_option("0")
    at.get_by_role("button", name="Make the new key").click()
    second = taken(at)
    assert As(url, first).get("/v1/access/whoami").status == 401
    assert As(url, second).get("/v1/access/whoami").json["principal"] == "key:shop"

    [key] = [each for each in document(secured)["keys"] if second.startswith(f"silt_{each['id']}")]
    at.locator("tr", has_text=key["id"]).get_by_role("button", name="Revoke shop").click()
    at.get_by_label("Type shop to go on").fill("shop")
    at.get_by_role("button", name="Revoke it").click()
    page.shows("of shop counts no more.")
    assert As(url, second).get("/v1/access/whoami").status == 401


def test_closing_a_key_that_was_not_copied_is_asked_about(page: Page) -> None:
    at = page.go("access")
    at.get_by_role("button", name="New key").click()
    at.get_by_label("Name", exact=True).fill("hasty")
    at.get_by_role("button", name="Make it").click()
    at.get_by_label("The key", exact=True).wait_for()
    at.get_by_role("button", name="Close").click()
    page.shows("It is not shown again")
    assert at.get_by_label("The key", exact=True).inner_text().startswith("silt_")
    at.get_by_role("button", name="Close").click()
    at.get_by_role("dialog").wait_for(state="detached")


def test_roles_entries_and_quotas_are_put_and_removed(page: Page, secured: Secured) -> None:
    at = page.go("access/roles")
    at.get_by_role("button", name="Give a role").click()
    at.get_by_label("To whom").fill("group:analysts")
    at.get_by_role("button", name="Save").click()
    at.get_by_role("button", name="Change analysts-consumer").click()
    at.get_by_label("For names that begin with").fill("orders")
    at.get_by_role("button", name="Save").click()
    analysts = at.locator("tr", has_text="group:analysts")
    analysts.get_by_role("cell", name="names that begin with orders").wait_for()
    assert document(secured)["bindings"]["analysts-consumer"] == {
        "principal": "group:analysts",
        "role": "consumer",
        "prefix": "orders",
    }
    assert column(at, "Roles", "Called") == list(document(secured)["bindings"])

    page.go("access/entries")
    at.get_by_role("button", name="New entry").click()
    at.get_by_role("combobox", name="It", exact=True).select_option("deny")
    at.get_by_label("To whom").fill(HOSTILE)
    at.get_by_label("Name", exact=True).fill("orders.secret")
    at.get_by_label("Its name").fill("no-secrets")
    at.get_by_role("button", name="Save").click()
    at.get_by_role("cell", name=HOSTILE).wait_for()
    assert document(secured)["acls"]["no-secrets"] == {
        "principal": HOSTILE,
        "kind": "topic",
        "name": "orders.secret",
        "operations": ["read"],
        "pattern": "literal",
        "effect": "deny",
    }
    assert at.evaluate("window.hurt") is None

    page.go("access/check")
    at.get_by_label("Who", exact=True).fill(HOSTILE)
    at.get_by_label("called").fill("orders.secret")
    at.get_by_role("button", name="Ask").click()
    page.shows("entry no-secrets denies it")

    page.go("access/quotas")
    at.get_by_role("button", name="New quota").click()
    at.get_by_label("Whose").fill("key:etl")
    at.get_by_label("Requests a second").fill("7.5")
    at.get_by_role("button", name="Save").click()
    at.get_by_role("cell", name="7.5 requests/s").wait_for()
    assert document(secured)["quotas"]["etl"]["requests_per_s"] == 7.5

    for tab, name, part in (
        ("roles", "analysts-consumer", "bindings"),
        ("entries", "no-secrets", "acls"),
        ("quotas", "etl", "quotas"),
    ):
        page.go(f"access/{tab}")
        at.get_by_role("button", name=f"Remove {name}").click()
        at.get_by_label(f"Type {name} to go on").fill(name)
        at.get_by_role("button", name="Remove it").click()
        at.get_by_role("button", name=f"Remove {name}").wait_for(state="detached")
        assert name not in document(secured)[part]


def test_enter_asks_whether_somebody_may(page: Page, secured: Secured) -> None:
    at = page.go("access/check")
    at.get_by_label("Who", exact=True).fill("key:nobody")
    at.get_by_label("called").fill("orders")
    at.get_by_label("called").press("Enter")
    page.shows("key:nobody may not read topic orders")


def test_a_change_of_what_another_changed_is_refused_and_goes_again(page: Page, secured: Secured) -> None:
    at = page.go("access/roles")
    at.get_by_role("button", name="Give a role").click()
    at.get_by_label("To whom").fill("key:late")
    assert (
        secured.admin.json("PUT", "/v1/access/bindings/sooner", {"principal": "key:sooner", "role": "viewer"}).status
        == 200
    )
    at.get_by_role("button", name="Save").click()
    page.shows("Somebody else changed access")
    assert "late-consumer" not in document(secured)["bindings"]
    at.get_by_role("dialog").get_by_role("button", name="Load it again").click()
    at.get_by_role("cell", name="key:sooner").wait_for()
    at.get_by_role("button", name="Save").click()
    at.get_by_role("cell", name="key:late").wait_for()
    assert document(secured)["bindings"]["late-consumer"]["principal"] == "key:late"


@pytest.mark.parametrize("role", ["operator", "producer", "consumer", "viewer"])
def test_who_does_not_administer_is_told_so_and_refused(browser: Any, secured: Secured, role: str) -> None:
    _, caller = secured.key(f"mere-{role}", (role, ""))
    with as_caller(browser, secured, caller) as page:
        at = page.go("access")
        page.shows("This needs the right to admin the cluster.")
        assert at.get_by_role("button", name="New key").count() == 0
    assert caller.json("POST", "/v1/access/keys", {"name": "more"}).status == 403


def test_without_authentication_it_says_how_that_is_turned_on(browser: Any) -> None:
    with running_server(redis_url=NO_REDIS) as server, opened(browser, server) as page:
        page.go("access")
        page.shows("Authentication is off.")
        page.shows("silt access bootstrap ops")
