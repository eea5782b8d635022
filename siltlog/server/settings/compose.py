"""The compose file of a server that `silt init` founded: the image `siltlog` with the places and ports of this machine.

The container has the network of the machine, so that who may connect is as the answers said, and sees each folder and
file under the path that it has here, so that the settings hold in it as they are.
"""

import json
from pathlib import Path
from urllib.parse import urlsplit

from siltlog.infra import names
from siltlog.infra.errors import ConfigError
from siltlog.infra.settings.settings import ServerSettings
from siltlog.server.settings.unit import Places

IMAGE = "siltlog"
_FROM_THE_CALLER = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

_FILE = """\
# Made by silt init, of {config}. The image is built as docs/deploy.md says.
services:
  server:
    image: {image}
    restart: unless-stopped
    init: true
    read_only: true
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    network_mode: host
    user: {user}
    environment:
{environment}
    volumes:
{volumes}
    tmpfs: ["/tmp:mode=1777,size=256m"]
    # {drain} s for what was taken, as much for the jobs that run, and some.
    stop_grace_period: {grace}s
    mem_limit: 4g
    pids_limit: 1024
    ulimits:
      nofile: 65536
    healthcheck:
      test: ["CMD", "silt", "health"]
      interval: 15s
      timeout: 5s
      retries: 3
      start_period: 60s
    logging:
      driver: json-file
      options: {{max-size: 10m, max-file: "5"}}
"""


def compose_of(places: Places, settings: ServerSettings) -> str:
    """The file for these places, whose user is numbers. Raises ConfigError where a container could not have one."""
    written = [(path, "") for path in places.written]
    mounts = written + [(path, ":ro") for path in (places.config, *places.read) if not _within(path, places)]
    for path, _ in mounts:
        if ":" in str(path) or not str(path).isprintable():
            raise ConfigError(f"{str(path)!r} cannot be given to a container: its name has a colon, or does not print")
    drain = settings.drain_ms // 1000
    variables = {
        # These the image has values of its own for, which would be above those of the file.
        "SILT_HOST": settings.host,
        "SILT_DATA_DIR": str(settings.data_dir),
        names.ENV_CONFIG: str(places.config),
        "SILT_URL": f"unix:{settings.data_dir / names.SOCKET_FILE}",
        # The image knows no other user than its own, who has no home.
        "HOME": "/tmp",  # noqa: S108 (a file system of the container's own)
    }
    environment = [f"{name}={value}" for name, value in variables.items()]
    environment += _FROM_THE_CALLER if urlsplit(settings.root_uri).scheme == "s3" else ()
    return _FILE.format(
        config=places.config,
        image=IMAGE,
        user=_quoted(places.user),
        environment=_items(environment),
        volumes=_items([f"{path}:{path}{how}" for path, how in mounts]),
        drain=drain,
        grace=2 * drain + 5,
    )


def _within(path: Path, places: Places) -> bool:
    return any(path.is_relative_to(folder) for folder in places.written)


def _items(texts: list[str]) -> str:
    return "\n".join(f"      - {_quoted(text)}" for text in texts)


def _quoted(text: str) -> str:
    """A string of YAML, of which Compose replaces nothing."""
    return json.dumps(text.replace("$", "$$"), ensure_ascii=False)
