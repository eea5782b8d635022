"""What a store tells of its requests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from siltlog.infra.errors import Unavailable
from siltlog.infra.store.local import LocalStore


@pytest.mark.parametrize(
    ("call", "request_name"),
    [
        (lambda store: store.put("a/b", b"x"), "put"),
        (lambda store: store.put_if_absent("a/c", b"x"), "put"),
        (lambda store: store.size("a/b"), "head"),
        (lambda store: store.list("a"), "list"),
        (lambda store: store.delete("a/b"), "delete"),
    ],
)
def test_each_request_is_told_of(tmp_path: Path, call: Callable[[LocalStore], object], request_name: str) -> None:
    told: list[tuple[str, bool]] = []
    store = LocalStore(str(tmp_path), lambda request, seconds, failed: told.append((request, failed)))
    call(store)
    assert told == [(request_name, False)]


def test_what_is_absent_is_no_failure_and_what_cannot_be_read_is_one(tmp_path: Path) -> None:
    told: list[tuple[str, bool]] = []
    store = LocalStore(str(tmp_path), lambda request, seconds, failed: told.append((request, failed)))
    with pytest.raises(FileNotFoundError):
        store.get("absent")
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unavailable):
        store.get("folder")
    assert told == [("get", False), ("get", True)]
