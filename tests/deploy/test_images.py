"""The images: built of this tree, and run as a container runtime runs them."""

import json
import os
import re
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer
from images import NATIVE, Builder, Container, Image, checked
from ports import free_port

from siltlog import Admin, Consumer, Producer

MB = 1_000_000
SERVER_PACKED_MAX = 350 * MB
SERVER_UNPACKED_MAX = 680 * MB
PIPELINES_PACKED_MAX = 1_100 * MB
RECORDS = 1_000
VERSION_OF_CODEC = tomllib.loads((NATIVE / "Cargo.toml").read_text("utf-8"))["package"]["version"]
pytestmark = [pytest.mark.deploy, pytest.mark.timeout(2400), pytest.mark.slow]


@pytest.fixture(scope="module")
def builder(tool: Callable[[str], str], cache: Path) -> Iterator[Builder]:
    for name in ("buildah", "mmdebstrap", "unshare", "nsenter"):
        tool(name)
    if os.getuid() != 0:
        pytest.skip("namespaces and mounts are root's")
    builder = Builder(cache)
    yield builder
    builder.clear()


@pytest.fixture(scope="module")
def base(builder: Builder) -> str:
    return builder.base()


@pytest.fixture(scope="module")
def rust(builder: Builder) -> str | None:
    """A ground with Rust, made of the toolchain of this machine; None where that is none of rustup's."""
    if shutil.which("cargo") is None or shutil.which("rustc") is None:
        return None
    sysroot = Path(checked("rustc", "--print", "sysroot").strip())
    return builder.rust(sysroot) if (sysroot / "bin" / "cargo").exists() and sysroot != Path("/usr") else None


@pytest.fixture(scope="module")
def server(builder: Builder, base: str, rust: str | None) -> Image:
    """What is built by default; where there is no Rust to build it with, that with numpy's codec."""
    wheels = builder.wheels(base)
    if rust is None:
        return builder.build("server", base, wheels, "--build-arg", "CODEC=numpy")
    crates = f"{builder.crates()}:/.cargo:ro"
    return builder.build("server", base, wheels, "--build-arg", f"RUST={rust}", "--volume", crates)


@pytest.fixture(scope="module")
def native(server: Image, rust: str | None) -> Image:
    if rust is None:
        pytest.skip("the codec is built by a toolchain of rustup's, and there is none on PATH")
    return server


@pytest.fixture(scope="module")
def plain(builder: Builder, base: str) -> Image:
    """It is built where there is no Rust."""
    chosen = ("--build-arg", "CODEC=numpy", "--build-arg", "RUST=localhost/there-is-none")
    return builder.build("server", base, builder.wheels(base), *chosen, tag="plain")


@pytest.fixture(scope="module")
def pipelines(builder: Builder, base: str) -> Image:
    return builder.build("pipelines", base, builder.wheels(base))


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A folder that belongs to the image's user."""
    folder = tmp_path / "volume"
    folder.mkdir(mode=0o700)
    os.chown(folder, 10001, 10001)
    tmp_path.chmod(0o755)
    return folder


def on_loopback(port: int) -> dict[str, str]:
    return {"SILT_HOST": "127.0.0.1", "SILT_PORT": str(port), "SILT_URL": f"http://127.0.0.1:{port}"}


@contextmanager
def speaking_kafka(image: Image, volume: Path, folder: Path, codec: str) -> Iterator[tuple[str, str]]:
    """A container that says in its log which codec it has; gives its address, and that for Kafka's clients."""
    port, listen = free_port(), f"127.0.0.1:{free_port()}"
    container = Container(image, volume, folder, environment={**on_loopback(port), "SILT_KAFKA_LISTEN": listen})
    try:
        container.wait_for("Kafka's protocol is served")
        assert re.search(rf"\bcodec\W+{codec}\b", container.said()), container.said()
        yield f"http://127.0.0.1:{port}", listen
    finally:
        container.kill()


def test_the_server_image_says_what_a_runtime_must_know(server: Image) -> None:
    config = server.config
    assert config["User"] == "10001:10001"
    assert list(config["Volumes"]) == ["/data"]
    assert config["StopSignal"] in ("SIGTERM", "15")
    assert config["Entrypoint"] == ["silt"]
    assert config["Cmd"] == ["serve"]
    assert config["Healthcheck"]["Test"] == ["CMD", "silt", "health"]
    assert "SILT_SCHEDULE_COMPACT=off" in config["Env"]
    labels = config["Labels"]
    assert labels["org.opencontainers.image.title"] == "Siltlog"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_the_server_image_has_no_java_no_spark_no_pip_and_only_bytecode_of_its_own(server: Image) -> None:
    packages = next(server.root.glob("opt/siltlog/lib/python3.*/site-packages"))
    names = {re.split(r"[-.]", path.name)[0].lower() for path in packages.iterdir()}
    assert {"pyspark", "delta", "pip", "setuptools"} & names == set()
    assert [
        path for path in (server.root / "usr" / "bin").iterdir() if path.name in ("java", "pip", "pip3", "gcc")
    ] == []
    sources = set((packages / "siltlog").rglob("*.py"))
    compiled = {path.parent.parent / f"{path.name.split('.')[0]}.py" for path in (packages / "siltlog").rglob("*.pyc")}
    assert sources - compiled == set()
    assert [path for path in packages.rglob("*") if path.lstat().st_uid != 0] == []  # the server cannot change itself


def test_the_server_image_has_the_native_codec_and_nothing_else_of_rust(
    native: Image, volume: Path, tmp_path: Path
) -> None:
    with speaking_kafka(native, volume, tmp_path / "run", f"siltlog-native {VERSION_OF_CODEC}") as (url, listen):
        with Admin(url) as admin:
            admin.create_topic("orders", partitions=1)
        producer = KafkaProducer({"bootstrap.servers": listen, "compression.type": "zstd"})
        for number in range(RECORDS):
            producer.produce("orders", str(number))
        assert producer.flush(60) == 0
        consumer = KafkaConsumer({"bootstrap.servers": listen, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        got = sorted(int(message.value()) for message in consumer.consume(RECORDS, 60))
        consumer.close()
        assert got == list(range(RECORDS))
    left = {"cargo", "rustc", "maturin"}
    assert [path for path in native.root.rglob("*") if path.name in left or path.suffix in (".rs", ".rlib")] == []


def test_an_image_without_the_codec_is_built_without_rust(plain: Image, tmp_path: Path, volume: Path) -> None:
    assert list(plain.root.glob("opt/siltlog/lib/python3.*/site-packages/siltlog_native*")) == []
    with speaking_kafka(plain, volume, tmp_path / "run", "numpy"):
        pass


def test_a_codec_that_there_is_not_ends_the_build(builder: Builder, base: str) -> None:
    with pytest.raises(AssertionError, match="codec-rust"):
        builder.build("server", base, builder.wheels(base), "--build-arg", "CODEC=rust", tag="none")


def test_the_server_image_is_small(server: Image, record_property: Callable[[str, object], None]) -> None:
    packed, unpacked = server.packed_bytes(), server.unpacked_bytes()
    record_property("megabytes", (packed // MB, unpacked // MB))
    print(f"server: {packed // MB} MB packed, {unpacked // MB} MB unpacked")
    assert packed < SERVER_PACKED_MAX
    assert unpacked < SERVER_UNPACKED_MAX


def test_it_does_not_stand_open_by_itself(server: Image, volume: Path, tmp_path: Path) -> None:
    container = Container(server, volume, tmp_path / "run")
    assert container.wait() == 1, container.said()
    assert "SILT_INSECURE=no-tls,no-auth" in container.said()
    assert "set SILT_AUTH=on" in container.said()


def test_what_was_acknowledged_is_there_after_a_stop_and_after_a_kill(
    server: Image, volume: Path, tmp_path: Path
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    sent: list[str] = []

    def started(times: int) -> Container:
        container = Container(server, volume, tmp_path / "run", environment=on_loopback(port))
        container.wait_for("listening on", times)
        return container

    def published(count: int) -> None:
        with Producer(url) as producer:
            values = [f"v{len(sent) + number}" for number in range(count)]
            for future in [producer.send("orders", value=value.encode()) for value in values]:
                future.result()
            sent.extend(values)

    container = started(1)
    try:
        with Admin(url) as admin:
            admin.create_topic("orders", partitions=1)
        published(100)
        health = container.execute(server.config["Healthcheck"]["Test"][1:])
        assert health.returncode == 0, health.stderr
        status = Path(f"/proc/{container.pid}/status").read_text()
        assert re.search(r"^Uid:\t10001\t10001", status, re.MULTILINE)
        assert re.search(r"^CapBnd:\t0+$", status, re.MULTILINE)
        assert re.search(r"^NSpid:\t\d+\t1$", status, re.MULTILINE)
        assert container.execute(["touch", "/opt/siltlog/x"]).returncode != 0
        container.send(signal.SIGTERM)
        assert container.wait() == 0
        assert "drained" in container.said()

        container = started(2)
        published(100)
        container.kill()

        container = started(3)
        published(1)
        with Consumer(url, topics=["orders"], group="readers", auto_offset_reset="earliest") as consumer:
            got: list[str] = []
            while len(got) < len(sent):
                got += [bytes(record.value).decode() for record in consumer.poll(timeout_ms=5000)]
        assert got == sent
        assert container.execute(["silt", "retain"]).returncode == 0
    finally:
        container.kill()


def test_the_pipelines_image_compacts_without_a_network(
    server: Image, pipelines: Image, volume: Path, tmp_path: Path
) -> None:
    port = free_port()
    environment = {**on_loopback(port), "SILT_FLUSH_MS": "50"}
    container = Container(server, volume, tmp_path / "server", environment=environment)
    container.wait_for("listening on")
    try:
        with Admin(f"http://127.0.0.1:{port}") as admin:
            admin.create_topic("orders", partitions=1)
        with Producer(f"http://127.0.0.1:{port}", acks="table") as producer:
            for number in range(8):
                producer.send("orders", value=str(number).encode()).result()
        container.send(signal.SIGTERM)
        assert container.wait() == 0
    finally:
        container.kill()
    job = Container(
        pipelines,
        volume,
        tmp_path / "job",
        arguments=["--output", "json", "compact"],
        environment={"SILT_ROOT": "file:///data/lake"},
        offline=True,
    )
    assert job.wait(300) == 0, job.said()
    assert "orders" in job.said()
    print(job.said())


def test_the_pipelines_image_has_everything_inside(pipelines: Image) -> None:
    packed = pipelines.packed_bytes()
    print(f"pipelines: {packed // MB} MB packed, {pipelines.unpacked_bytes() // MB} MB unpacked")
    assert packed < PIPELINES_PACKED_MAX
    cache = pipelines.root / "opt" / "siltlog" / "cache" / "siltlog"
    assert len(list((cache / "classes").glob("*.jsa"))) == 1
    manifests = [json.loads(path.read_text()) for path in (cache / "jars").glob("*/manifest.json")]
    assert len(manifests) == 2


def test_a_build_with_another_lock_fails(builder: Builder, base: str, tmp_path: Path) -> None:
    """The hashes are looked at: a wheel that is not the one of the lock is not installed."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for path in builder.wheels(base).iterdir():
        if path.name.startswith("click-"):
            (wheels / path.name).write_bytes(path.read_bytes() + b"x")
        else:
            os.link(path, wheels / path.name) if path.stat().st_dev == wheels.stat().st_dev else None
    lock = f"{Path(__file__).parents[2] / 'requirements'}:/locks:ro"
    container = builder("from", "--pull-never", base)
    pip = "python3 -m venv /b && /b/bin/pip wheel --no-index --no-deps --require-hashes --find-links /wheels"
    with pytest.raises(AssertionError, match="DO NOT MATCH"):
        builder(
            *("run", "--volume", lock, "--volume", f"{wheels}:/wheels:ro", container, "--", "sh", "-c"),
            f"{pip} -r /locks/server.txt -w /out",
        )
    builder("rm", container)


def test_no_process_is_left(builder: Builder) -> None:
    left = subprocess.run(["ps", "-eo", "uid,args"], capture_output=True, text=True, check=True).stdout
    assert [line for line in left.splitlines() if line.split()[0] == "10001"] == []
