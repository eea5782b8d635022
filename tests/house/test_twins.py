"""The synchronous modules that are made of asynchronous ones are what `make twins` would make now."""

import pytest
from twins import TOP, TWINS, Twin, synchronous


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.made)
def test_the_twin_is_current(twin: Twin) -> None:
    assert (TOP / twin.made).read_text("utf-8") == twin.text(), "run `make twins`"


def test_only_the_words_of_the_language_go() -> None:
    source = (
        '"""To await."""\n\n\nasync def f():  # async\n    async with g(await h()) as x:\n        return (await x).y\n'
    )
    assert synchronous(source) == (
        '"""To await."""\n\n\ndef f():  # async\n    with g(h()) as x:\n        return (x).y\n'
    )


def test_a_phrase_that_the_source_lost_is_told() -> None:
    twin = TWINS[0]._replace(phrases={"there is no such phrase": "x"})
    with pytest.raises(ValueError, match="no such phrase"):
        twin.text()


def test_names_are_the_same_but_for_what_says_async() -> None:
    twin = TWINS[0]
    assert "class Admin:" in twin.text()
    assert not [word for word in ("Async", "async_", "await ", "__aenter__") if word in twin.text().split("\n", 1)[1]]
