import pytest

from siltlog.infra.errors import Refused
from siltlog.infra.http.media import chosen_coding, chosen_media

OFFERED = ("application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", OFFERED[0]),
        ("*/*", OFFERED[0]),
        ("application/*", OFFERED[0]),
        ("Application/JSON; charset=utf-8", OFFERED[0]),
        (OFFERED[2], OFFERED[2]),
        (f"text/html, {OFFERED[1]}, */*;q=0.1", OFFERED[1]),
        (f"{OFFERED[0]};q=0.5, {OFFERED[2]};q=0.9", OFFERED[2]),
        (f"{OFFERED[0]};q=0, */*", OFFERED[1]),
        (f"*/*, {OFFERED[0]};q=0.2", OFFERED[1]),
        (" , ,", OFFERED[0]),
    ],
)
def test_the_best_that_is_accepted(accept: str, chosen: str) -> None:
    assert chosen_media(accept, OFFERED) == chosen


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "*/*;q=0", "application/json;q=none"])
def test_nothing_acceptable_names_what_there_is(accept: str) -> None:
    with pytest.raises(Refused, match="application/x-ndjson") as caught:
        chosen_media(accept, OFFERED)
    assert caught.value.status == 406


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        ("", None),
        ("identity", None),
        ("br", None),
        ("gzip, deflate, br", "gzip"),
        ("gzip, zstd", "zstd"),
        ("zstd;q=0.1, gzip", "gzip"),
        ("*", "zstd"),
        ("*, zstd;q=0", "gzip"),
        ("gzip;q=0", None),
    ],
)
def test_codings(header: str, chosen: str | None) -> None:
    assert chosen_coding(header, ("zstd", "gzip")) == chosen
