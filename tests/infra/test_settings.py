"""Where settings come from, which one holds, and what is said of one that is not valid."""

from pathlib import Path
from typing import Any

import pytest

from siltlog.infra.errors import ConfigError
from siltlog.infra.settings import SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MIN, ServerSettings, load, variable

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for field in (*ServerSettings.model_fields, "config"):
        monkeypatch.delenv(f"SILT_{field.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)


OTHER: dict[str, Any] = {
    "host": "0.0.0.0",
    "port": 0,
    "data_dir": "/elsewhere",
    "root": "s3://bucket/prefix",
    "redis_url": "redis://somewhere:6379/1",
    "node_id": "node-7",
    "advertise_url": "http://silt.example:80",
    "acks": "table",
    "flush_ms": 7,
    "flush_bytes": 7,
    "flush_files_per_hour": -1,
    "wal_bytes_max": 64 * MIB,
    "head_bytes_max": 2 * MIB,
    "request_bytes_max": 2_048,
    "record_bytes_max": 7,
    "connections_max": 7,
    "request_timeout_ms": 700,
    "offsets_snapshot_ms": 70,
    "offsets_retention_ms": -1,
    "drain_ms": 0,
    "auto_create_partitions": 7,
    "schedule": "off",
    "schedule_compact": "1 2 * * *",
    "schedule_retain": "1 2 3 * *",
    "schedule_vacuum": "1 2 3 4 *",
    "schedule_audit": "",
    "cors_origins": "https://a.example,https://b.example",
    "hosts": "silt.example",
    "log_level": "debug",
    "log_format": "json",
    "s3_endpoint": "http://127.0.0.1:9000",
    "s3_region": "eu-central-1",
}
"""For every setting a value that is not its default."""


def test_every_setting_is_tried() -> None:
    assert set(OTHER) == set(ServerSettings.model_fields)
    assert all(str(value) != str(getattr(ServerSettings(), name)) for name, value in OTHER.items())


@pytest.mark.parametrize("name", OTHER)
def test_every_source_and_which_one_wins(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default = getattr(ServerSettings(), name)
    loaded = load()
    assert (getattr(loaded.settings, name), loaded.sources[name]) == (default, "default")
    other = OTHER[name]
    (tmp_path / "siltlog.toml").write_text(f"{name} = {other!r}\n")
    loaded = load()
    assert (str(getattr(loaded.settings, name)), loaded.sources[name]) == (str(other), "file")
    monkeypatch.setenv(f"SILT_{name.upper()}", str(default))
    loaded = load()
    expected = (default, "environment") if str(default) else (type(default)(other), "file")
    assert (getattr(loaded.settings, name), loaded.sources[name]) == expected, "an empty variable is none"
    loaded = load({name: other, "flush_ms": None} if name != "flush_ms" else {name: other})
    assert (str(getattr(loaded.settings, name)), loaded.sources[name]) == (str(other), "flag")


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
        (b"prot = 1\n", "prot in siltlog.toml is not a setting"),
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
        ("acks", "object"),
        ("flush_ms", "0"),
        ("wal_bytes_max", "100"),
        ("head_bytes_max", "1.5"),
        ("node_id", "a b"),
        ("root", "/a/path"),
        ("root", "gs://bucket"),
        ("log_level", "loud"),
        ("auto_create_partitions", "10001"),
    ],
)
def test_a_value_that_is_wrong_is_told_with_its_source(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SILT_{name.upper()}", value)
    with pytest.raises(ConfigError, match=f"^SILT_{name.upper()}='{value}' is not valid: "):
        load()
    monkeypatch.delenv(f"SILT_{name.upper()}")
    with pytest.raises(ConfigError, match=f"^--{name.replace('_', '-')}='{value}' is not valid: "):
        load({name: value})


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
    assert SEGMENT_BYTES_MIN <= settings.segment_bytes <= SEGMENT_BYTES_MAX
    assert SEGMENTS_MIN * settings.segment_bytes <= wal_bytes_max
    assert settings.request_bytes == settings.segment_bytes // 2
    assert ServerSettings(request_bytes_max=1024).request_bytes == 1024


def test_variables_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    assert variable("JAVA_HOME") is None
    monkeypatch.setenv("JAVA_HOME", "/java")
    assert variable("JAVA_HOME") == "/java"
