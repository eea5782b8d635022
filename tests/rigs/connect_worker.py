"""A worker of Kafka Connect with the connectors of files, from the jars of Kafka's tools."""

import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3
from kafka_rig import WAIT_SECONDS, free_port
from kafka_tools import java_command

STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
_OWN = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "500",
}
STOP_SECONDS = 15.0
"""So long a stop may take before it is looked at; most take one or two."""
THREADS_SECONDS = 3.0
"""So long a worker has to log what its threads do."""
Settings = Mapping[str, str]


class Worker:
    """Raises what KafkaTools does."""

    def __init__(self, folder: Path, main: str, bootstrap: str, settings: Settings, connectors: Mapping[str, Settings]):
        """`connectors` are those that a standalone worker starts with."""
        self._http = urllib3.PoolManager(timeout=WAIT_SECONDS, retries=False)
        self._url = f"http://127.0.0.1:{free_port()}"
        whole = {**_OWN, "bootstrap.servers": bootstrap, "listeners": self._url, **settings}
        files = [_written(folder / "worker.properties", whole)]
        for name, own in connectors.items():
            files.append(_written(folder / f"{name}.properties", {"name": name, **own}))
        self._log = folder / "worker.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*java_command("-Xmx256m"), main, *files], stdout=log, stderr=log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """It keeps how far it is, and ends."""
        self._process.terminate()
        if not self._has_ended(STOP_SECONDS) and self._will_never_end():
            self._process.kill()
        assert self._has_ended(WAIT_SECONDS), self._log.read_text()[-40_000:]

    def _has_ended(self, within_seconds: float) -> bool:
        try:
            self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _will_never_end(self) -> bool:
        """Whether what its threads do says so.

        Connect and Jetty both stop Connect's REST server when the process is to end. Where they meet, Jetty gives up
        and Connect waits for it for ever, as Kafka 4.3 did in 3 of 393 stops on a busy machine. The tasks go on
        meanwhile, and keep how far they are.
        """
        self._process.send_signal(signal.SIGQUIT)
        self._has_ended(THREADS_SECONDS)
        return "org.eclipse.jetty.server.Server.join(" in self._log.read_text()

    def until_up(self) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while not self._is_up():
            assert self._process.poll() is None and time.monotonic() < end, self._log.read_text()[-4_000:]
            time.sleep(0.2)

    def connectors(self) -> list[str]:
        return sorted(self._http.request("GET", self._url + "/connectors").json())

    def put(self, name: str, settings: Settings) -> None:
        """Makes a connector of a distributed worker."""
        reply = self._http.request("PUT", f"{self._url}/connectors/{name}/config", json=dict(settings))
        assert reply.status == 201, reply.data

    def failures(self) -> list[str]:
        """What connectors and their tasks failed of."""
        told: list[Any] = []
        for name in self.connectors():
            state = self._http.request("GET", f"{self._url}/connectors/{name}/status").json()
            told += [state.get("connector", {}), *state.get("tasks", ())]
        return [each["trace"] for each in told if "trace" in each]

    def until_file_has(self, path: Path, lines: list[str]) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while not path.exists() or len(path.read_text().splitlines()) < len(lines):
            assert time.monotonic() < end, self.failures()
            time.sleep(0.1)
        assert path.read_text().splitlines() == lines

    def _is_up(self) -> bool:
        try:
            return self._http.request("GET", self._url + "/connectors").status == 200
        except urllib3.exceptions.HTTPError:
            return False


def _written(path: Path, settings: Settings) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path
