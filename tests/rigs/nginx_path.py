"""nginx that has a server below a path, for tests of what is shown there."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from proxy_rig import await_port, free_port, has_proxy

needs_nginx = pytest.mark.skipif(not has_proxy("nginx"), reason="no nginx is installed (Debian: apt-get install nginx)")
_CONFIGURATION = """
error_log stderr;
pid {folder}/nginx.pid;
daemon off;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  map $http_upgrade $upgraded {{ default upgrade; '' ''; }}
  server {{
    listen 127.0.0.1:{port};
    location {path}/ {{
      proxy_pass {server}{passed};
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $upgraded;
      proxy_buffering off;
    }}
  }}
}}
"""


@contextmanager
def below(path: str, server_url: str, folder: Path, *, stripped: bool) -> Iterator[str]:
    """Starts nginx with the server at `path` (such as `/a/b`), which it takes off where it is `stripped`; gives the
    address of that."""
    port = free_port()
    configuration, log = folder / "nginx.conf", folder / "nginx.log"
    given = {"folder": folder, "port": port, "path": path, "server": server_url, "passed": "/" if stripped else ""}
    configuration.write_text(_CONFIGURATION.format(**given))
    command = shutil.which("nginx") or "/usr/sbin/nginx"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [command, "-e", "stderr", "-p", folder, "-c", configuration], stdout=output, stderr=output
        )
    try:
        await_port(process, port, log)
        yield f"http://127.0.0.1:{port}{path}"
    finally:
        process.terminate()
        process.wait()
