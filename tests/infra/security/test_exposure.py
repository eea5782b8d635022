import itertools

import pytest

from siltlog.infra.errors import ConfigError
from siltlog.infra.security.exposure import WORDS, check_exposure, insecure_words, is_loopback, missing


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_loopback_lacks_nothing(host: str) -> None:
    assert is_loopback(host)
    assert missing(host, tls=False, auth=False) == []


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "silt.example", "localhost.example", "127.0.0.1.example"]
)
def test_what_others_may_reach_lacks_what_it_does_without(host: str) -> None:
    assert not is_loopback(host)
    for tls, auth in itertools.product((True, False), repeat=2):
        lacking = missing(host, tls=tls, auth=auth)
        assert ("no-tls" in lacking) is not tls
        assert ("no-auth" in lacking) is not auth


def test_each_word_waives_its_own_only() -> None:
    for waived in itertools.chain.from_iterable(itertools.combinations(WORDS, n) for n in range(3)):
        for lacks in itertools.chain.from_iterable(itertools.combinations(WORDS, n) for n in range(3)):
            if set(lacks) <= set(waived):
                check_exposure("0.0.0.0", lacks, waived)
                continue
            with pytest.raises(ConfigError) as refused:
                check_exposure("0.0.0.0", lacks, waived)
            assert ("without TLS" in str(refused.value)) is ("no-tls" in lacks and "no-tls" not in waived)
            assert ("without authentication" in str(refused.value)) is ("no-auth" in lacks and "no-auth" not in waived)


def test_the_refusal_says_each_way_out() -> None:
    with pytest.raises(ConfigError) as refused:
        check_exposure("0.0.0.0", WORDS, ())
    for way in ("SILT_TLS_CERT", "SILT_TRUSTED_PROXIES", "SILT_AUTH=on", "127.0.0.1", "SILT_INSECURE=no-tls,no-auth"):
        assert way in str(refused.value)


def test_words() -> None:
    assert insecure_words(" no-auth, no-tls,") == {"no-auth", "no-tls"}
    assert insecure_words("") == set()
    with pytest.raises(ValueError, match="'yes' is none of its words: no-tls, no-auth"):
        insecure_words("yes")
