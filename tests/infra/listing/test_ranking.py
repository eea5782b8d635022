"""Lists in the order of a value, page by page."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.errors import Refused
from siltlog.infra.listing.ranking import ORDERS, Order, Ranking

NAMES = st.text("abz", min_size=1, max_size=3)


@given(
    st.dictionaries(NAMES, st.integers(0, 3).map(float)),
    st.sampled_from(("name", "rate")),
    st.sampled_from(ORDERS),
    st.integers(1, 4),
    st.sampled_from(("", "a")),
    st.sets(NAMES),
)
def test_pages_have_each_that_is_seen_once_and_in_order(
    values: dict[str, float], sort: str, order: Order, limit: int, prefix: str, hidden: set[str]
) -> None:
    ranking, found, after = Ranking(sort, order), [], ""
    while True:
        page = asyncio.run(
            ranking.page(values, prefix=prefix, after=after, limit=limit, visible=lambda name: name not in hidden)
        )
        found += page.names
        if page.next is None:
            break
        assert len(page.names) == limit
        after = page.next
    seen = sorted(name for name in values if name.startswith(prefix) and name not in hidden)
    if sort == "name":
        assert found == (seen if order == "asc" else seen[::-1])
    else:
        assert found == sorted(seen, key=lambda name: values[name], reverse=order == "desc")


def test_what_comes_and_goes_between_pages_moves_nothing_else() -> None:
    ranking = Ranking("rate", "desc")
    values = {f"t{number}": float(number) for number in range(10)}
    first = asyncio.run(ranking.page(values, prefix="", after="", limit=3, visible=None))
    assert first.names == ["t9", "t8", "t7"]
    del values["t7"], values["t9"]
    values["new"] = 8.5
    second = asyncio.run(ranking.page(values, prefix="", after=first.next or "", limit=3, visible=None))
    assert second.names == ["t6", "t5", "t4"]


def test_a_cursor_is_of_one_order() -> None:
    cursor = Ranking("rate", "desc").cursor(1.5, "t")
    assert Ranking("rate", "desc").names({"s": 1.5, "u": 1.5, "v": 2.0}, "", cursor) == ["u"]
    others = ((Ranking("rate", "asc"), cursor), (Ranking("lag", "desc"), cursor), (Ranking("rate", "desc"), "orders"))
    for ranking, text in others:
        with pytest.raises(Refused, match="after is not what the last reply gave") as refused:
            ranking.names({}, "", text)
        assert refused.value.members["parameter"] == "after"
