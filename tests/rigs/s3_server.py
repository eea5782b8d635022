"""A real S3 server on loopback, for tests: SeaweedFS in one process."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from random import SystemRandom
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

GRPC_PORT_DISTANCE = 10_000
"""SeaweedFS listens for gRPC that far above each of its ports."""
START_S = 60
VOLUMES_MAX = 200
"""Each bucket fills one of its own. Left alone, SeaweedFS has as many as would fit on the disk if they were full: with
10 GB free, nine, and the tenth bucket takes nothing."""
PORTS = range(20_000, 22_700)
"""Neither they nor those for gRPC are among the ports that Linux gives to whoever asks for any, or those of other
programs of tests: nobody takes one while the server is away."""
LOG_FILE = "weed.log"
_WITH_KMS = {
    "identities": [
        {
            "name": "tests",
            "credentials": [{"accessKey": "silt-test", "secretKey": "silt-test-secret"}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ],
    "kms": {"default_provider": "own", "providers": {"own": {"type": "local", "enableOnDemandCreate": True}}},
}
_CHANCE = SystemRandom()
KEYS = {"AWS_ACCESS_KEY_ID": "silt-test", "AWS_SECRET_ACCESS_KEY": "silt-test-secret"}


@dataclass
class S3Server:
    endpoint: str
    access_key: str
    secret_key: str
    region: str
    bucket: str
    process: "subprocess.Popen[bytes]"
    arguments: list[str]
    directory: Path
    ports: list[int]
    """All that it listens on, those for gRPC too."""

    def root_uri(self, prefix: str) -> str:
        return f"s3://{self.bucket}/{prefix}"

    def environment(self) -> dict[str, str]:
        """What boto3's own chain takes the keys from, for child processes."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def restart(self) -> None:
        """After it was killed: on the same ports and data."""
        self.process = _spawn(self.arguments, self.directory)
        _wait_until_ready(self)

    def go_on(self) -> None:
        """Runs and answers, whether it was stopped, killed or neither."""
        if self.process.poll() is not None:
            self.restart()
        else:
            self.process.send_signal(signal.SIGCONT)
            _wait_until_ready(self)

    def stop(self) -> None:
        """Ends it at once: asked to end, it takes longer than most tests, and nobody reads its data again."""
        self.process.kill()
        self.process.wait()
        for port in self.ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)


def start_s3_server(directory: Path, *, kms: bool = False) -> S3Server:
    """Starts it with its data in `directory`; returns once its bucket can be listed.

    With `kms` it has keys of its own for `aws:kms`, and makes each when it is first named.
    """
    ports = _free_ports(4)
    s3, master, filer, volume = ports
    weed = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    assert weed, "the weed binary is missing: install the dev dependencies"
    arguments = [
        weed,
        "-logtostderr=true",
        "mini",
        f"-dir={directory}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-s3.port={s3}",
        f"-master.port={master}",
        f"-filer.port={filer}",
        f"-volume.port={volume}",
        f"-volume.max={VOLUMES_MAX}",
        "-webdav=false",
        "-admin.ui=false",
        "-master.telemetry=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-bucket=silt",
    ]
    if kms:
        (directory / "s3.json").write_text(json.dumps(_WITH_KMS))
        arguments.append(f"-s3.config={directory / 's3.json'}")
    server = S3Server(
        f"http://127.0.0.1:{s3}",
        KEYS["AWS_ACCESS_KEY_ID"],
        KEYS["AWS_SECRET_ACCESS_KEY"],
        "us-east-1",
        "silt",
        _spawn(arguments, directory),
        arguments,
        directory,
        [*ports, *(port + GRPC_PORT_DISTANCE for port in ports)],
    )
    try:
        _wait_until_ready(server)
    except BaseException:
        server.stop()
        print((directory / LOG_FILE).read_text(errors="replace")[-5000:])
        raise
    return server


def with_new_bucket(server: S3Server, bucket: str) -> S3Server:
    """The same server with another bucket. A Spark session keeps how it reaches a bucket for as long as it lives."""
    _client(server).create_bucket(Bucket=bucket)
    made = replace(server, bucket=bucket)
    _wait_until_ready(made)
    return made


def _spawn(arguments: list[str], directory: Path) -> "subprocess.Popen[bytes]":
    with (directory / LOG_FILE).open("ab") as output:
        return subprocess.Popen(
            arguments, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **KEYS}, cwd=directory
        )


def _wait_until_ready(server: S3Server) -> None:
    client = _client(server)
    deadline = time.monotonic() + START_S
    while True:
        try:
            # An empty object would ask for no room.
            client.put_object(Bucket=server.bucket, Key="ready", Body=b"ready")
            return
        except (BotoCoreError, ClientError):
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _client(server: S3Server) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=Config(connect_timeout=1, read_timeout=5, retries={"total_max_attempts": 1}),
    )


def _free_ports(count: int) -> list[int]:
    """Ports that are free together with the ones for gRPC above them."""
    ports: list[int] = []
    while len(ports) < count:
        port = _CHANCE.choice(PORTS)
        with socket.socket() as probe, socket.socket() as above:
            try:
                probe.bind(("127.0.0.1", port))
                above.bind(("127.0.0.1", port + GRPC_PORT_DISTANCE))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports
