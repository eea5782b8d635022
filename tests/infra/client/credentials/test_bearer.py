import math

import pytest
from credential_server import jwt

from siltlog.infra.client.credentials.bearer import Bearer, expires_at
from siltlog.infra.errors import ConfigError


def test_the_expiry_of_a_jwt_is_read() -> None:
    assert expires_at(jwt(exp=1_800_000_000, sub="ä")) == 1_800_000_000


@pytest.mark.parametrize("token", ["silt_abc_def", "a.b", "a.b.c", "a.bbbbb.c", "..", jwt(), jwt(exp=None)])
def test_another_token_has_none(token: str) -> None:
    assert expires_at(token) == math.inf


def test_a_token_is_due_a_minute_before_it_expires() -> None:
    bearer = Bearer()
    assert bearer.header == "" and not bearer.holds(0)
    bearer.take(jwt(exp=1_000), 0)
    assert not bearer.is_due(939.9) and bearer.is_due(940)
    bearer.take("silt_abc", 0)
    assert bearer.header == "Bearer silt_abc" and not bearer.is_due(1e12)


@pytest.mark.parametrize(("exp", "due"), [(80, 40), (2, 1), (0, 1)])
def test_one_that_lives_shorter_is_not_asked_for_at_every_request(exp: int, due: int) -> None:
    bearer = Bearer()
    bearer.take(jwt(exp=exp), 0)
    assert not bearer.is_due(due - 0.1) and bearer.is_due(due)


def test_the_present_one_is_used_until_it_expires() -> None:
    bearer = Bearer()
    bearer.take(jwt(exp=1_000), 0)
    assert bearer.holds(950)
    assert not bearer.is_due(954.9) and bearer.is_due(955)
    assert not bearer.holds(1_000)


@pytest.mark.parametrize("token", ["", "a b", "a\nb", "ä", None, b"bytes"])
@pytest.mark.rule("X8")
def test_what_is_no_token_is_refused_without_being_shown(token: object) -> None:
    with pytest.raises(ConfigError) as refused:
        Bearer().take(token, 0)
    assert not token or str(token) not in str(refused.value)
