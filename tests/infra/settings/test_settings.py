"""Where settings come from, which one holds, and what is said of one that is not valid."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from pydantic import SecretStr

from siltlog.infra.errors import ConfigError
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.security.callers.certificate_rules import read_rules
from siltlog.infra.settings.fit import OF_CLUSTERS, OIDC, SEGMENT_BYTES_MIN, SEGMENTS_MIN
from siltlog.infra.settings.loading import (
    LoadedSettings,
    checked,
    environment_of_programs,
    environment_with,
    load,
    load_server,
    not_for_programs,
    shown,
    variable,
)
from siltlog.infra.settings.settings import (
    SECRETS,
    SEGMENT_BYTES_DEFAULT,
    ServerSettings,
)

MIB = 1024 * 1024
SERVICE_VARIABLES = {
    "SILT_SERVICE_HOST": "10.96.0.17",
    "SILT_SERVICE_PORT": "7070",
    "SILT_SERVICE_PORT_HTTP": "7070",
    "SILT_PORT": "tcp://10.96.0.17:7070",
    "SILT_PORT_7070_TCP": "tcp://10.96.0.17:7070",
    "SILT_PORT_7070_TCP_PROTO": "tcp",
    "SILT_PORT_7070_TCP_PORT": "7070",
    "SILT_PORT_7070_TCP_ADDR": "10.96.0.17",
    "SILT_REDIS_SERVICE_HOST": "fd00::17",
    "SILT_REDIS_PORT": "tcp://[fd00::17]:6379",
}


@pytest.fixture(scope="module")
def certificates() -> dict[str, bytes]:
    authority = trustme.CA()
    own = authority.issue_cert("silt.example")
    return {
        "ca.pem": authority.cert_pem.bytes(),
        "cert.pem": own.private_key_and_cert_chain_pem.bytes(),
        "key.pem": own.private_key_pem.bytes(),
    }


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificates: dict[str, bytes]) -> None:
    for name, content in {**certificates, "password": b"of a file\n"}.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o600)
    for field in (*ServerSettings.model_fields, "config"):
        monkeypatch.delenv(f"SILT_{field.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)


OTHER: dict[str, Any] = {
    "host": "0.0.0.0",
    "port": 0,
    "data_dir": "/elsewhere",
    "root": "s3://bucket/prefix",
    "redis_url": "redis://somewhere:6379/1",
    "redis_user": "silt",
    "redis_password": "hunter22",
    "redis_password_file": "password",
    "redis_ca": "ca.pem",
    "redis_cert": "cert.pem",
    "redis_key": "key.pem",
    "node_id": "node-7",
    "advertise_url": "http://silt.example:80",
    "cluster": "on",
    "zone": "eu-central-1a",
    "lease_ms": 7_000,
    "heartbeat_ms": 700,
    "acks": "table",
    "flush_ms": 7,
    "flush_bytes": 7,
    "flush_files_per_hour": -1,
    "burst_ms": 7,
    "requests_budget": 50,
    "object_interval_ms": 100,
    "journal_root": "s3://another/prefix",
    "removed_files_retention_ms": 7 * 3_600_000,
    "wal_bytes_max": 64 * MIB,
    "wal_segment_bytes": 2 * MIB,
    "head_bytes_max": 2 * MIB,
    "request_bytes_max": 2_048,
    "record_bytes_max": 7,
    "connections_max": 7,
    "connections_per_ip_max": 7,
    "request_timeout_ms": 700,
    "offsets_snapshot_ms": 70,
    "offsets_retention_ms": -1,
    "session_timeout_ms_min": 1_000,
    "session_timeout_ms_max": 60_000,
    "rebalance_timeout_ms_min": 2_000,
    "rebalance_timeout_ms_max": 70_000,
    "group_initial_rebalance_delay_ms": 700,
    "drain_ms": 0,
    "default_partitions": 7,
    "auto_create_partitions": 7,
    "schedule": "off",
    "schedule_compact": "1 2 * * *",
    "schedule_retain": "1 2 3 * *",
    "schedule_vacuum": "1 2 3 4 *",
    "schedule_audit": "",
    "schedule_catalog": "1 2 3 4 5",
    "catalog_glue": "logs",
    "catalog_region": "eu-central-1",
    "catalog_unity": "https://unity.example",
    "catalog_schema": "main.logs",
    "catalog_token_file": "/etc/silt/unity.token",
    "cors_origins": "https://a.example,https://b.example",
    "hosts": "silt.example",
    "auth": "on",
    "secret_file": "/etc/silt/secret",
    "access_stale_ms": 70_000,
    "tls_cert": "/etc/silt/tls.crt",
    "tls_key": "/etc/silt/tls.key",
    "tls_min": "1.2",
    "tls_client_ca": "/etc/silt/ca.crt",
    "tls_client": "required",
    "tls_crl": "/etc/silt/ca.crl",
    "tls_peer_ca": "/etc/silt/nodes.crt",
    "certificates": '[{"from": "dns", "match": "*.etl.example"}]',
    "oidc_issuer": "https://id.example/realms/data",
    "oidc_audience": "silt-prod",
    "oidc_principal_claim": "oid",
    "oidc_groups_claim": "roles",
    "oidc_client_id": "siltlog-page",
    "oidc_client_secret": "hunter22",
    "oidc_client_secret_file": "password",
    "oidc_scopes": "openid groups",
    "oidc_ca": "/etc/silt/id.crt",
    "trusted_proxies": "10.0.0.0/8",
    "path_prefix": "/data/log",
    "metrics_port": 9_464,
    "grpc_listen": "127.0.0.1:7071",
    "kafka_listen": "127.0.0.1:9092",
    "kafka_advertise": "silt.example:9092",
    "metrics_history": "off",
    "ui": "off",
    "tails_max": 9,
    "ui_viewers_max": 7,
    "metrics_host": "0.0.0.0",
    "insecure": "no-tls",
    "log_level": "debug",
    "log_format": "json",
    "traces": "on",
    "access_log": "all",
    "debug": "on",
    "s3_endpoint": "http://127.0.0.1:9000",
    "s3_region": "eu-central-1",
    "s3_sse": "kms",
    "s3_kms_key_id": "arn:aws:kms:eu-central-1:123456789012:key/0a1b",
}
"""Every setting has a value here that is not its default."""
CLUSTER = {
    "root": "s3://bucket/prefix",
    "advertise_url": "http://silt-1.example:7070",
    "redis_url": "redis://somewhere:6379",
}
BESIDE = {
    "cluster": CLUSTER,
    **{name: {"cluster": "on", **CLUSTER} for name in OF_CLUSTERS},
    "metrics_host": {"metrics_port": "9464"},
    "s3_kms_key_id": {"s3_sse": "kms"},
    "catalog_glue": {"root": "s3://bucket/prefix"},
    "catalog_region": {"root": "s3://bucket/prefix", "catalog_glue": "logs"},
    "catalog_schema": {"catalog_unity": "https://unity.example"},
    "catalog_token_file": {"catalog_unity": "https://unity.example", "catalog_schema": "main.logs"},
    "redis_user": {"redis_url": "redis://h", "redis_password": "hunter22"},
    "redis_password": {"redis_url": "redis://h"},
    "redis_password_file": {"redis_url": "redis://h"},
    "redis_ca": {"redis_url": "rediss://h"},
    "redis_cert": {"redis_url": "rediss://h"},
    "redis_key": {"redis_url": "rediss://h", "redis_cert": "cert.pem"},
    **{name: {"oidc_issuer": "https://id.example"} for name in OIDC},
    **{
        name: {"oidc_issuer": "https://id.example", "oidc_client_id": "page"}
        for name in ("oidc_client_secret", "oidc_client_secret_file", "oidc_scopes")
    },
    "kafka_advertise": {"kafka_listen": "127.0.0.1:9092"},
}
"""What some mean something with alone."""


def plain(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def value_of(loaded: LoadedSettings, name: str) -> Any:
    return plain(getattr(loaded.settings, name))


def test_every_setting_is_tried() -> None:
    assert set(OTHER) == set(ServerSettings.model_fields)
    assert all(str(value) != str(getattr(ServerSettings(), name)) for name, value in OTHER.items())


@pytest.mark.parametrize("name", OTHER)
def test_every_source_and_which_one_wins(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default = plain(getattr(ServerSettings(), name))
    for other, value in BESIDE.get(name, {}).items():
        monkeypatch.setenv(f"SILT_{other.upper()}", value)
    loaded = load()
    assert (value_of(loaded, name), loaded.sources[name]) == (default, "default")
    other = OTHER[name]
    (tmp_path / "siltlog.toml").write_text(f"{name} = {other!r}\n")
    (tmp_path / "siltlog.toml").chmod(0o600)
    loaded = load()
    assert (str(value_of(loaded, name)), loaded.sources[name]) == (str(other), "file")
    monkeypatch.setenv(f"SILT_{name.upper()}", str(default))
    loaded = load()
    expected = (default, "environment") if str(default) else (type(default)(other), "file")
    assert (value_of(loaded, name), loaded.sources[name]) == expected, "an empty variable is none"
    loaded = load({name: other, "flush_ms": None} if name != "flush_ms" else {name: other})
    assert (str(value_of(loaded, name)), loaded.sources[name]) == (str(other), "flag")


def test_the_times_of_jobs_are_a_table_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "siltlog.toml").write_text("[schedule]\ncompact = '7 * * * *'\nvacuum = ''\n")
    loaded = load()
    assert (loaded.settings.schedule, loaded.sources["schedule"]) == ("on", "default")
    assert (loaded.settings.schedule_compact, loaded.sources["schedule_compact"]) == ("7 * * * *", "file")
    monkeypatch.setenv("SILT_SCHEDULE_RETAIN", "off")
    monkeypatch.setenv("SILT_SCHEDULE", "off")
    settings = load().settings
    assert settings.schedule == "off"
    crons = {job: cron.expression for job, cron in settings.crons().items()}
    assert crons == {"compact": "7 * * * *", "audit": settings.schedule_audit}


def test_a_file_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "siltlog.toml").write_text("port = 1\n")
    (tmp_path / "mine.toml").write_text("port = 2\n")
    monkeypatch.setenv("SILT_CONFIG", "mine.toml")
    assert load().settings.port == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"port = \n", "siltlog.toml cannot be read"),
        (b"node_id = '\xff'\n", "siltlog.toml cannot be read"),
        (b"prot = 1\n", r"prot in siltlog.toml is not a setting; did you mean port\?"),
        (b"data-dir = 'a'\n", r"data-dir in siltlog.toml is not a setting; did you mean data_dir\?"),
        (b"[schedule]\ncompactt = '5 * * * *'\n", r"in \[schedule\] of siltlog.toml .*; did you mean compact?"),
        (b"[server]\nport = 1\n", "server in siltlog.toml is not a setting"),
        (b"[schedule]\nretention = '5 * * * *'\n", r"retention in \[schedule\] of siltlog.toml is not a setting"),
        (b"[schedule]\nretain = 'daily'\n", r"retain in \[schedule\] of siltlog.toml='daily' is not valid: .* cron"),
        (b"schedule = 'sometimes'\n", "schedule in siltlog.toml='sometimes' is not valid"),
        (b"port = 'x'\n", "port in siltlog.toml='x' is not valid"),
    ],
)
def test_a_file_that_is_wrong(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "siltlog.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "70000"),
        ("port", "-1"),
        ("acks", "objects"),
        ("flush_ms", "0"),
        ("wal_bytes_max", "100"),
        ("head_bytes_max", "1.5"),
        ("node_id", "a b"),
        ("root", "/a/path"),
        ("root", "gs://bucket"),
        ("root", "s3:/bucket"),
        ("root", "s3:///bucket"),
        ("root", "s3://bucket/day?x"),
        ("root", "file://relative/lake"),
        ("root", "file:lake"),
        ("redis_url", "foo"),
        ("redis_url", "redis:h:6379"),
        ("redis_url", "redis://h:99999/0"),
        ("redis_url", "redis://h/zero"),
        ("redis_url", "redis://h?foo=1"),
        ("redis_url", "redis://h/0?socket_timeout=soon"),
        ("redis_url", "redis://[::1"),
        ("redis_url", "unix://relative"),
        ("s3_endpoint", "minio:9000"),
        ("s3_endpoint", "http://my_minio:9000"),
        ("s3_endpoint", "http://minio:port"),
        ("s3_region", "eu_central_1"),
        ("advertise_url", "silt.example"),
        ("hosts", "https://silt.example"),
        ("hosts", "silt.example:7070"),
        ("cors_origins", "*"),
        ("cors_origins", "app.example"),
        ("cors_origins", "https://app.example/"),
        ("certificates", '[{"from": "cn", "match": "ops"}]'),
        ("certificates", "[{]"),
        ("certificates", '[{"from": "dns", "match": "*"}]'),
        ("oidc_issuer", "http://id.example"),
        ("oidc_issuer", "https://id.example?realm=data"),
        ("oidc_issuer", "id.example"),
        ("tls_min", "1.1"),
        ("tls_client", "yes"),
        ("trusted_proxies", "10.0.0.1/8"),
        ("trusted_proxies", "proxy.example"),
        ("path_prefix", "data/log"),
        ("path_prefix", "/data/log/"),
        ("path_prefix", "/data/../log"),
        ("path_prefix", "/v1/log"),
        ("insecure", "yes"),
        ("insecure", "no-tls,no-authentication"),
        ("flush_ms", "7 fortnights"),
        ("wal_bytes_max", "4XB"),
        ("log_level", "loud"),
        ("auto_create_partitions", "10001"),
        ("session_timeout_ms_min", "99"),
        ("rebalance_timeout_ms_max", "3600001"),
        ("group_initial_rebalance_delay_ms", "-1"),
        ("default_partitions", "0"),
        ("default_partitions", "10001"),
        ("wal_segment_bytes", "2147483648"),
    ],
)
def test_a_value_that_is_wrong_is_told_with_its_source(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SILT_{name.upper()}", value)
    with pytest.raises(ConfigError, match=f"^SILT_{name.upper()}='{re.escape(value)}' is not valid: "):
        load()
    monkeypatch.delenv(f"SILT_{name.upper()}")
    with pytest.raises(ConfigError, match=f"^--{name.replace('_', '-')}='{re.escape(value)}' is not valid: "):
        load({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("root", "file:///a/lake"),
        ("root", "file:/a/lake"),
        ("root", "s3://bucket"),
        ("redis_url", "redis://"),
        ("redis_url", "rediss://me:secret@h:6380/2?ssl_cert_reqs=none"),
        ("redis_url", "redis://[::1]:6379"),
        ("redis_url", "unix:///run/redis.sock?db=3"),
        ("s3_endpoint", "http://[::1]:9000"),
        ("advertise_url", "https://silt.example/"),
        ("hosts", "silt.example, my_silt, ::1"),
        ("cors_origins", "https://app.example, http://localhost:8000, null"),
        ("trusted_proxies", "10.0.0.0/8, 192.168.7.1, fd00::/8"),
        ("path_prefix", "/data/log_2"),
        ("insecure", "no-auth, no-tls"),
    ],
)
def test_addresses_that_fit(name: str, value: str) -> None:
    assert getattr(load({name: value}).settings, name) == value


def test_rules_of_certificates_are_tables_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "siltlog.toml"
    file.write_text(
        "[[certificates]]\nfrom = 'uri'\nmatch = 'spiffe://prod/*'\n[[certificates]]\nfrom = 'dns'\nmatch = 'a'\n"
    )
    rules = read_rules(load().settings.certificates)
    assert [(rule.source, rule.match, rule.principal) for rule in rules] == [
        ("uri", "spiffe://prod/*", ""),
        ("dns", "a", ""),
    ]
    file.write_text("[[certificates]]\nfrom = 'uri'\nmatch = 'spiffe://prod/*'\nprinciple = 'a'\n")
    with pytest.raises(ConfigError, match=r"certificates in siltlog.toml=.* is not valid: .*principle"):
        load()
    for wrong in ("certificates = 7\n", "[certificates]\nfrom = 'uri'\nmatch = 'a'\n"):
        file.write_text(wrong)
        with pytest.raises(ConfigError, match=r"certificates in siltlog.toml=.* is not valid"):
            load()


def test_a_provider_is_set_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILT_OIDC_GROUPS_CLAIM", "roles")
    with pytest.raises(ConfigError, match=r"^SILT_OIDC_GROUPS_CLAIM is set, and SILT_OIDC_ISSUER is not"):
        load()
    monkeypatch.setenv("SILT_OIDC_ISSUER", "https://id.example")
    assert load().settings.oidc_groups_claim == "roles"
    monkeypatch.setenv("SILT_OIDC_CLIENT_ID", "siltlog")
    with pytest.raises(ConfigError, match=r"^SILT_OIDC_AUDIENCE and SILT_OIDC_CLIENT_ID are the same"):
        load()


def test_amounts_have_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "siltlog.toml").write_text("offsets_retention_ms = '14d'\nhead_bytes_max = '64MiB'\n")
    monkeypatch.setenv("SILT_WAL_BYTES_MAX", "4GB")
    settings = load({"drain_ms": "1m30s"}).settings
    assert (settings.offsets_retention_ms, settings.head_bytes_max) == (14 * 86_400_000, 64 * MIB)
    assert (settings.wal_bytes_max, settings.drain_ms) == (4_000_000_000, 90_000)


def test_a_password_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILT_REDIS_URL", "redis://me:secret@h:99999/0")
    with pytest.raises(ConfigError, match=r"SILT_REDIS_URL='redis://me:\*\*\*@h:99999/0'") as caught:
        load()
    assert "secret" not in caught.value.detail


@pytest.mark.rule("A41")
@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hunter22@h:99999/0",
        "redis://me:hunt/er22@h",
        "redis://:hunt@er22@h:99999",
        "redis://me:hunt]er22@[h",
        "redis://me:hunt\u2100er22@h",
        "redis://h:99999?password=hunter22",
        "me:hunter22@h",
    ],
)
def test_a_password_is_not_told_however_the_address_is_wrong(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SILT_REDIS_URL", url)
    with pytest.raises(ConfigError, match=r"^SILT_REDIS_URL=.* is not valid: ") as caught:
        load()
    assert not re.search("hunt|er22", caught.value.detail), caught.value.detail
    with pytest.raises(ValueError, match="redis_url") as foreign:
        ServerSettings(redis_url=url)
    assert not re.search("hunt|er22", str(foreign.value))


@pytest.mark.rule("A41")
@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_has_a_file_and_is_shown_nowhere(name: str) -> None:
    assert f"{name}_file" in ServerSettings.model_fields
    settings = ServerSettings.model_validate({"redis_url": "redis://h", **BESIDE.get(name, {}), name: "hunter22"})
    told = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()} {settings.redis_access!r}"
    assert "hunter22" not in told
    assert (shown(name, getattr(settings, name)), shown(name, SecretStr(""))) == ("***", "")
    assert "hunter22" in settings.secret_values()


def test_a_secret_of_the_wrong_type_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "siltlog.toml").write_text("redis_password = 22334455\n")
    (tmp_path / "siltlog.toml").chmod(0o600)
    with pytest.raises(ConfigError, match=r"redis_password in siltlog.toml='\*\*\*' is not valid") as caught:
        load()
    assert "22334455" not in caught.value.detail


def test_a_password_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILT_REDIS_URL", "rediss://h:6380")
    monkeypatch.setenv("SILT_REDIS_USER", "silt")
    monkeypatch.setenv("SILT_REDIS_PASSWORD_FILE", "password")
    monkeypatch.setenv("SILT_REDIS_CA", "ca.pem")
    assert load().settings.redis_access == RedisAccess(
        "rediss://h:6380", user="silt", password="of a file", ca="ca.pem"
    )
    (tmp_path / "password").chmod(0o604)
    with pytest.raises(ConfigError, match=r"^SILT_REDIS_PASSWORD_FILE='password' is not valid: every user .* 600"):
        load()
    (tmp_path / "password").chmod(0o600)
    (tmp_path / "password").write_text("\nsecond line")
    with pytest.raises(ConfigError, match="its first line is empty"):
        load()
    monkeypatch.setenv("SILT_REDIS_PASSWORD_FILE", "absent")
    with pytest.raises(ConfigError, match="SILT_REDIS_PASSWORD_FILE='absent' is not valid: it cannot be read"):
        load()
    monkeypatch.setenv("SILT_REDIS_PASSWORD", "hunter22")
    with pytest.raises(ConfigError, match="SILT_REDIS_PASSWORD and SILT_REDIS_PASSWORD_FILE are both set") as caught:
        load()
    assert "hunter22" not in caught.value.detail


def test_a_settings_file_with_a_secret_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "siltlog.toml"
    path.write_text("redis_url = 'redis://h'\nredis_password = 'hunter22'\n")
    path.chmod(0o644)
    with pytest.raises(
        ConfigError, match=r"siltlog.toml has redis_password, and every user .*: chmod 600 siltlog.toml"
    ):
        load()
    path.chmod(0o600)
    assert load().settings.redis_access.password == "hunter22"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"s3_kms_key_id": "0a1b"}, "SILT_S3_KMS_KEY_ID is set, and SILT_S3_SSE is not kms"),
        ({"redis_password": "hunter22"}, "SILT_REDIS_PASSWORD is set, and SILT_REDIS_URL is not"),
        ({"oidc_issuer": "https://id.example", "oidc_scopes": "openid a"}, "for the login of the page"),
        ({"oidc_issuer": "https://id.example", "oidc_client_secret": "hunter22"}, "set SILT_OIDC_CLIENT_ID"),
        (
            {"oidc_issuer": "https://id.example", "oidc_client_id": "p", "oidc_scopes": "groups"},
            "openid among them",
        ),
        ({"redis_url": "redis://:other@h", "redis_password": "hunter22"}, "has a password too"),
        ({"redis_url": "redis://me:other@h", "redis_user": "silt"}, "has a user too"),
        ({"redis_url": "redis://h", "redis_ca": "ca.pem"}, "are for TLS"),
        ({"redis_url": "rediss://h", "redis_key": "key.pem"}, "set SILT_REDIS_CERT too"),
        ({"redis_url": "rediss://h", "redis_ca": "absent.pem"}, "SILT_REDIS_CA='absent.pem' cannot be used: No such"),
        ({"redis_url": "rediss://h", "redis_ca": "password"}, "SILT_REDIS_CA='password' cannot be used"),
        ({"redis_url": "rediss://h", "redis_cert": "ca.pem"}, "SILT_REDIS_CERT='ca.pem' and its key cannot be used"),
    ],
)
def test_what_does_not_fit_a_redis(given: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in given.items():
        monkeypatch.setenv(f"SILT_{name.upper()}", value)
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        load()
    assert "hunter22" not in caught.value.detail and "other" not in caught.value.detail


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("SILT_ROOOT", "SILT_ROOOT is not a variable of Siltlog: did you mean SILT_ROOT?"),
        ("SILT_DATADIR", "did you mean SILT_DATA_DIR?"),
        ("SILT_S3_REGOIN", "did you mean SILT_S3_REGION?"),
        ("SILT_ULR", "did you mean SILT_URL?"),
        ("SILT_CONFIGURATION", "did you mean SILT_CONFIG?"),
        ("SILT_XYZZY", "`silt config show` lists"),
        ("silt_root", "did you mean SILT_ROOT?"),
        ("SILTLOG_ROOT", "did you mean SILT_ROOT?"),
    ],
)
def test_a_variable_that_is_misspelt(name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "")
    load()
    monkeypatch.setenv(name, "s3://bucket/prefix")
    monkeypatch.setenv("SILT_PORT", "x")
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        load()
    assert "SILT_PORT='x'" in caught.value.detail, "with all else that is wrong"


def test_a_service_of_kubernetes_called_silt(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SERVICE_VARIABLES.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="enableServiceLinks: false") as caught:
        load()
    assert caught.value.detail.count("SILT_") == 1, "the others stop nobody"
    assert load({"port": 7070}).settings.port == 7070
    monkeypatch.delenv("SILT_PORT")
    assert load().settings.port == 7070


def test_all_that_is_wrong_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILT_PORT", "x")
    with pytest.raises(ConfigError, match=r"SILT_PORT='x'.*; --flush-ms='y'"):
        load({"flush_ms": "y"})


def test_the_data_dir_is_absolute_and_holds_the_tables(tmp_path: Path) -> None:
    settings = load({"data_dir": "a dir"}).settings
    assert settings.data_dir == tmp_path / "a dir"
    assert settings.root_uri == (tmp_path / "a dir" / "lake").as_uri()
    assert load({"root": "s3://bucket/prefix/"}).settings.root_uri == "s3://bucket/prefix"


@pytest.mark.parametrize("wal_bytes_max", [SEGMENTS_MIN * SEGMENT_BYTES_MIN, 64 * MIB, 4096 * MIB])
def test_a_request_fits_into_a_segment_and_several_segments_into_the_budget(wal_bytes_max: int) -> None:
    settings = ServerSettings(wal_bytes_max=wal_bytes_max, request_bytes_max=1 << 40)
    assert SEGMENT_BYTES_MIN <= settings.segment_bytes <= SEGMENT_BYTES_DEFAULT
    assert SEGMENTS_MIN * settings.segment_bytes <= wal_bytes_max
    assert settings.request_bytes == settings.segment_bytes // 2
    assert ServerSettings(request_bytes_max=1024).request_bytes == 1024


def test_a_segment_is_as_large_as_it_was_set_where_four_of_them_fit() -> None:
    assert ServerSettings(wal_segment_bytes=3 * MIB, wal_bytes_max=12 * MIB).segment_bytes == 3 * MIB
    large = ServerSettings(wal_segment_bytes=256 * MIB, request_bytes_max=100 * MIB)
    assert (large.segment_bytes, large.request_bytes) == (256 * MIB, 100 * MIB)
    for size, most in ((MIB - 1, 4096 * MIB), (1, 4096 * MIB), (3 * MIB + 1, 12 * MIB)):
        with pytest.raises(ConfigError, match=rf"SILT_WAL_SEGMENT_BYTES is {size}: it is from 1048576 to {most // 4}"):
            load({"wal_segment_bytes": str(size), "wal_bytes_max": str(most)})


@pytest.mark.parametrize("name", ["session_timeout_ms", "rebalance_timeout_ms"])
def test_bounds_of_time_outs_that_leave_none_are_told(name: str) -> None:
    with pytest.raises(ConfigError, match=f"SILT_{name.upper()}_MIN is 5000, and SILT_{name.upper()}_MAX 4000"):
        load({f"{name}_min": "5s", f"{name}_max": "4s"})


def test_variables_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    assert variable("JAVA_HOME") is None
    monkeypatch.setenv("JAVA_HOME", "/java")
    assert variable("JAVA_HOME") == "/java"


@pytest.mark.rule("A43")
def test_a_job_is_given_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "PATH": "/bin",
        "LC_ALL": "C.UTF-8",
        "AWS_PROFILE": "lake",
        "JAVA_HOME": "/java",
        "SILT_ROOT": "s3://lake/x",
        "SILT_FLUSH_MS": "7",
        "SILT_CONFIG": "mine.toml",
        "SILT_TOKEN_FILE": "/run/token",
        "SILT_TOKEN": "of-a-job",
        "SILT_TRACES": "on",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
        "OTEL_EXPORTER_OTLP_HEADERS": "key=of-a-job",
    }
    withheld = {
        **{f"SILT_{name.upper()}{end}": "hunter22" for name in SECRETS for end in ("", "_FILE")},
        "SILT_SECRET_FILE": "/run/secret",
        "SILT_SECRET_OLD": "hunter22",
        "SILT_SOMETHING": "hunter22",
        "DATABASE_URL": "postgres://hunter22",
        "GITHUB_TOKEN": "hunter22",
    }
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in {**given, **withheld, "SILT_REDIS_URL": "redis://me:hunter22@h:1/2?password=hunter22"}.items():
        monkeypatch.setenv(name, value)
    expected = {**given, "SILT_REDIS_URL": "redis://h:1/2", "SILT_PORT": "1"}
    assert environment_with({"SILT_PORT": "1"}) == expected
    tokens = {"SILT_TOKEN", "SILT_TOKEN_FILE", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"}
    assert set(not_for_programs()) == {*withheld, *tokens}
    assert environment_of_programs().keys() == {*given, "SILT_REDIS_URL"} - tokens
    monkeypatch.setenv("SILT_REDIS_URL", "hunter22")
    assert "SILT_REDIS_URL" not in environment_with({})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"root": ""}, "SILT_ROOT is not set: nodes share a root"),
        ({"advertise_url": ""}, "SILT_ADVERTISE_URL is not set: the other nodes must know"),
        ({"redis_url": ""}, "SILT_REDIS_URL is not set: all nodes keep their groups in the same Redis"),
        ({"auth": "on"}, "SILT_SECRET_FILE is not set: all nodes need the same secret"),
        ({"node_id": ".pending-1"}, "begins with no dot"),
        ({"zone": "a b"}, "zone"),
        ({"lease_ms": "900ms"}, "lease"),
        ({"lease_ms": 3_000}, "SILT_HEARTBEAT_MS is 1500 and SILT_LEASE_MS 3000"),
        ({"cluster": "off", "lease_ms": 9_000}, "SILT_LEASE_MS is set, and SILT_CLUSTER is off"),
        ({"cluster": "off", "zone": "a"}, "SILT_ZONE is set, and SILT_CLUSTER is off"),
    ],
)
def test_what_a_cluster_needs_is_asked_for(change: dict[str, Any], words: str) -> None:
    given = {"cluster": "on", **CLUSTER}
    loaded = load_server(given)
    assert loaded.settings.cluster == "on"
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_server(given | change)
    assert checked(given).cluster == "on"
    with pytest.raises(ConfigError):
        checked(given | change)
    with pytest.raises(ConfigError):
        LoadedSettings(loaded.settings, loaded.sources, replace(loaded.layers, flag=given | change), {}).read_again()


def test_what_a_node_alone_needs_is_asked_of_no_other_command() -> None:
    """But for the root and the secret, which are never guessed."""
    assert load({"cluster": "on", "root": CLUSTER["root"]}).settings.cluster == "on"
    assert load({"cluster": "off", "zone": "a"}).settings.zone == "a"
    for lacking in ({"cluster": "on"}, {"cluster": "on", "root": CLUSTER["root"], "auth": "on"}):
        with pytest.raises(ConfigError, match="is not set"):
            load(lacking)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"catalog_glue": "logs"}, "reads S3"),
        ({"root": "s3://b/p", "catalog_glue": "logs", "catalog_unity": "https://unity.example"}, "tells one catalog"),
        ({"catalog_region": "eu-central-1"}, "SILT_CATALOG_GLUE is not"),
        ({"catalog_schema": "main.logs"}, "SILT_CATALOG_UNITY is not"),
        ({"catalog_token_file": "token"}, "SILT_CATALOG_UNITY is not"),
    ],
)
def test_settings_of_catalogs_that_do_not_fit(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(given)


def test_catalogs_are_told_where_one_is_named() -> None:
    assert "catalog" not in ServerSettings().crons()
    named = {"catalog_unity": "https://unity.example", "catalog_schema": "main.logs"}
    assert ServerSettings.model_validate(named).crons()["catalog"].expression == "25 * * * *"
    assert "catalog" not in ServerSettings.model_validate({**named, "schedule_catalog": "off"}).crons()
