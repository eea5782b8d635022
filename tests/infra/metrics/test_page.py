"""The page of metrics, and the names in it."""

from pathlib import Path

from siltlog.infra.metrics.catalogue import CATALOGUE
from siltlog.infra.metrics.page import page

STORED = Path(__file__).parents[3] / "docs" / "metrics.md"
_UNITS = ("_seconds", "_bytes", "_records", "_total")


def test_the_stored_page_is_made_of_the_catalogue() -> None:
    assert STORED.read_text("utf-8") == page(), "make it again: python -m siltlog.infra.metrics.page > docs/metrics.md"


def test_names_follow_the_conventions() -> None:
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)
    for metric in CATALOGUE:
        assert metric.name.startswith("silt_")
        assert not metric.buckets or metric.name.endswith("_seconds"), metric.name
        # A scraper has labels of these names itself, and would set those of the server aside.
        assert not {"job", "instance"} & {*metric.labels}, metric.name
