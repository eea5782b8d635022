"""The bills of materials that a release has, by the tool that makes them."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from release.bill import LOCKS, TOOL, bill, differences

TOP = Path(__file__).parents[2]
TIME_S = "1700000000"


@cache
def first_bill(lock: str, tool: str) -> dict[str, Any]:
    return bill(TOP, lock, TIME_S, tool)


@pytest.mark.parametrize("name", LOCKS)
def test_a_bill_has_every_package_of_its_lock_with_its_licence(name: str, tool: Callable[[str], str]) -> None:
    lock = LOCKS[name]
    document = first_bill(lock, tool(TOOL))
    assert differences(document, (TOP / lock).read_text("utf-8")) == []
    assert (document["bomFormat"], document["metadata"]["component"]["name"]) == ("CycloneDX", "siltlog")
    assert document["metadata"]["timestamp"].startswith("2023-11-14T22:13:20")
    [arrow] = [component for component in document["components"] if component["name"] == "pyarrow"]
    assert arrow["licenses"] == [{"expression": "Apache-2.0"}]


def test_the_bill_of_a_lock_is_always_the_same(tool: Callable[[str], str]) -> None:
    assert first_bill(LOCKS["client"], tool(TOOL)) == bill(TOP, LOCKS["client"], TIME_S, tool(TOOL))
