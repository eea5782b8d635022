"""A connection that nobody uses."""

from types import SimpleNamespace
from typing import Any

import pytest

from siltlog.infra.http.connection.connection import Connection
from siltlog.infra.http.connection.crowd import KEEP_ALIVE_SECONDS


@pytest.mark.rule("P7")
def test_it_is_closed_after_its_time() -> None:
    closed: list[bool] = []
    connection: Any = Connection.__new__(Connection)
    connection.__dict__ |= {
        "_deaf": False,
        "_made_at": 100.0,
        "_served": SimpleNamespace(crowd=SimpleNamespace(is_stranger=lambda connection: False)),
        "_quiet_since": 100.0,
        "_upgrade": None,
        "cycle": None,
        "excess": False,
        "flow": SimpleNamespace(write_paused=False),
        "parser": None,
        "scope": None,
        "transport": SimpleNamespace(
            is_closing=lambda: False, get_write_buffer_size=lambda: 0, close=lambda: closed.append(True)
        ),
    }
    assert KEEP_ALIVE_SECONDS == 75
    assert connection.look(170.0, 30.0) == 5.0 and not closed
    assert connection.look(175.5, 30.0) == 0.0 and closed == [True]
