"""Real proxies in front of a server, with the configurations that the repository has for them."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ports import free_port as free_port
from tls_rig import Made

PROXIES = Path(__file__).parents[2] / "infra" / "deploy" / "proxies"
FILES = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg", "caddy": "Caddyfile"}
START_SECONDS_MAX = 60.0
DENIED = "/v1/topics/denied"
"""What the proxies let nobody through to."""


def has_proxy(name: str) -> bool:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])) is not None


@contextmanager
def proxy(name: str, made: Made, server_url: str) -> Iterator[str]:
    """Starts one of FILES with a certificate of `made` before a server; yields its address."""
    port = free_port()
    configuration = made.folder / f"{name}.conf"
    pair = made.folder / "pair.pem"
    pair.write_bytes(made.files.certificate.read_bytes() + made.files.key.read_bytes())
    given = (PROXIES / FILES[name]).read_text("utf-8").replace("127.0.0.1:7070", server_url.removeprefix("http://"))
    for named, path in (("tls.crt", made.files.certificate), ("tls.key", made.files.key), ("tls.pem", pair)):
        given = given.replace(f"/etc/siltlog/{named}", str(path))
    if name == "nginx":
        given = given.replace("listen 443", f"listen 127.0.0.1:{port}")
        given = given.replace("location / {", f"location {DENIED} {{ return 403; }}\nlocation / {{", 1)
        places = "".join(f"{kind}_temp_path {made.folder}/{kind};" for kind in ("client_body", "proxy"))
        given = (
            f"error_log stderr;pid {made.folder}/nginx.pid;daemon off;events{{}}http{{access_log off;{places}{given}}}"
        )
        command = [name, "-e", "stderr", "-p", str(made.folder), "-c", str(configuration)]
    elif name == "caddy":
        given = f"{{\nadmin off\nauto_https off\n}}\n{given}".replace(
            "https://log.example:443 {", f"https://:{port} {{\nbind 127.0.0.1\nrespond {DENIED}* 403\n"
        )
        command = [name, "run", "--adapter", "caddyfile", "--config", str(configuration)]
    else:
        given = given.replace("bind :443", f"bind 127.0.0.1:{port}")
        given = given.replace(
            "frontend siltlog\n", f"frontend siltlog\n    http-request deny if {{ path_beg {DENIED} }}\n", 1
        )
        command = [name, "-db", "-f", str(configuration)]
    configuration.write_text(given)
    log = made.folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        await_port(process, port, log)
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def await_port(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
