import secrets

import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import Unauthenticated
from siltlog.infra.security.callers import api_keys
from siltlog.infra.security.callers.api_keys import ApiKeys
from siltlog.infra.security.document import KeptKey
from siltlog.infra.security.keys import ApiKey, fits, hash_of, make_key

HASH_KEY = bytes(range(32))


class MovedClock(SystemClock):
    moved_us = 0

    def now_us(self) -> int:
        return self.moved_us


def kept(key: ApiKey, name: str = "ana", expires_us: int | None = None) -> dict[str, KeptKey]:
    return {key.key_id: KeptKey(name, hash_of(key, HASH_KEY), 0, expires_us)}


def reason(keys: ApiKeys, token: str) -> str:
    assert keys.known(token) is None
    with pytest.raises(Unauthenticated) as told:
        keys.verify(token, aside=False)
    assert token not in str(told.value)
    return str(told.value.members["reason"])


def test_whose_a_key_is() -> None:
    clock, key = MovedClock(), make_key(secrets.token_bytes)
    keys = ApiKeys(HASH_KEY, clock)
    assert reason(keys, key.text()) == "unknown"
    keys.keep(kept(key, expires_us=10))
    identity = keys.verify(key.text(), aside=True)
    assert identity == keys.known(key.text())
    assert (identity.subject.principal, identity.credential_id, identity.until_us) == ("key:ana", key.key_id, 10)
    keys.check(identity)
    clock.moved_us = 10
    assert reason(keys, key.text()) == "expired"
    keys.keep({})
    assert reason(keys, key.text()) == "unknown"
    with pytest.raises(Unauthenticated):
        keys.check(identity)


def test_what_is_no_whole_key() -> None:
    key = make_key(secrets.token_bytes)
    keys = ApiKeys(HASH_KEY, SystemClock())
    keys.keep(kept(key))
    text = key.text()
    assert [keys.takes(token) for token in (text, "silt_", "eyJ.a.b", "")] == [True, True, False, False]
    for token in (text[:-1], text + "a", text[:-1] + ("a" if text[-1] != "a" else "b"), "silt_", text.swapcase()):
        assert reason(keys, token) == "malformed"


@pytest.mark.rule("A32")
def test_every_whole_key_is_hashed_and_compared_whether_it_is_known_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, int]] = []

    def counting(key: ApiKey, stored: bytes, hash_key: bytes) -> bool:
        compared.append((key.key_id, len(stored)))
        return fits(key, stored, hash_key)

    monkeypatch.setattr(api_keys, "fits", counting)
    known, unknown = make_key(secrets.token_bytes), make_key(secrets.token_bytes)
    wrong = ApiKey(known.key_id, unknown.secret)
    keys = ApiKeys(HASH_KEY, SystemClock())
    keys.keep(kept(known))
    assert keys.known(known.text()) is not None
    assert [reason(keys, key.text()) for key in (unknown, wrong)] == ["unknown", "unknown"]
    assert compared == [(known.key_id, 32)] + [(unknown.key_id, 32)] * 2 + [(wrong.key_id, 32)] * 2
