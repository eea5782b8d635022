import re
from pathlib import Path

import pytest

from siltlog.infra.settings.file import settings_file
from siltlog.infra.settings.loading import load
from siltlog.infra.settings.settings import ServerSettings


def test_as_it_is_and_with_every_line_in_force_it_says_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for field in ServerSettings.model_fields:
        monkeypatch.delenv(f"SILT_{field.upper()}", raising=False)
    monkeypatch.setenv("SILT_CONFIG", str(tmp_path / "mine.toml"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(settings_file(), "utf-8")
    assert load().sources == dict.fromkeys(ServerSettings.model_fields, "default")
    in_force = re.sub(r"(?m)^# (\w+ = |\[)", r"\1", settings_file())
    (tmp_path / "mine.toml").write_text(in_force, "utf-8")
    loaded = load()
    assert loaded.settings == ServerSettings()
    assert loaded.sources == dict.fromkeys(ServerSettings.model_fields, "file") | {"schedule": "default"}
