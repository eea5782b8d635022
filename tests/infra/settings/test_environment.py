"""Variables that begin as ours do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.client.address import S3Address, default_s3, default_url
from siltlog.infra.errors import ConfigError
from siltlog.infra.names import ENV_OF_CLIENTS
from siltlog.infra.settings.environment import is_service_variable, misspelt
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.settings.suggestion import did_you_mean, nearest

KNOWN = ("SILT_URL", "SILT_ROOT", "SILT_PORT", "SILT_REDIS_URL")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SILT_MY_PORT", "7070"),
        ("SILT_SERVICE_HOST", "silt.example"),
        ("SILT_SERVICE_PORT", "tcp://10.0.0.1:7070"),
        ("SILT_PORT_7070_TCP_ADDR", "here"),
        ("SILT_PORT_7070_TCP_PROTO", "http"),
        ("SILT_PORT", "tcp://example:7070"),
        ("SILT_PORTS", "tcp://10.0.0.1:7070"),
        ("SILT_ROOOT", "10.0.0.1"),
    ],
)
def test_what_kubernetes_does_not_make(name: str, value: str) -> None:
    assert not is_service_variable(name, value)


@given(st.dictionaries(st.text("SILTUROabc_", min_size=1, max_size=12), st.text(max_size=3), max_size=5))
def test_every_unknown_variable_of_ours_is_told_and_nobody_elses(variables: dict[str, str]) -> None:
    told = misspelt(variables, KNOWN)
    ours = {name for name, value in variables.items() if value and name.startswith("SILT_") and name not in KNOWN}
    assert {line.split()[0] for line in told} >= ours
    assert all(line.split()[0].upper().startswith("SILT") for line in told)


def test_the_nearest() -> None:
    assert nearest("redis", ["root", "redis_url"]) == "redis_url"
    assert did_you_mean("ordres", ["events", "orders"]) == "; did you mean 'orders'?"
    assert did_you_mean("flights", ["events", "orders"]) == ""


def test_a_client_does_not_fall_back_on_a_default_where_a_variable_is_misspelt(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENV_OF_CLIENTS:
        monkeypatch.delenv(name, raising=False)
    for name in {f"SILT_{field.upper()}" for field in ServerSettings.model_fields} - set(ENV_OF_CLIENTS):
        monkeypatch.setenv(name, "a server's")
    monkeypatch.setenv("SILT_TOPIC", "a variable of somebody's own")
    assert (default_url(), default_s3()) == ("http://127.0.0.1:7070", S3Address())
    monkeypatch.setenv("SILT_ULR", "http://elsewhere:7070")
    monkeypatch.setenv("SILT_S3_ENDPIONT", "http://elsewhere:9000")
    with pytest.raises(ConfigError, match="SILT_ULR is not a variable of Siltlog, and SILT_URL is not set"):
        default_url()
    with pytest.raises(ConfigError, match="did you mean SILT_S3_ENDPOINT"):
        default_s3()
    monkeypatch.setenv("SILT_URL", "http://here:7070")
    assert default_url() == "http://here:7070"
