"""The wheel as `pip install` and `install.sh` bring it: client, server and Spark, each in an environment of its own, at
work with each other."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

pytestmark = [pytest.mark.deploy, pytest.mark.slow, pytest.mark.timeout(1_500)]

TOP = Path(__file__).parents[2]
RECORDS = 500
PATIENCE_SECONDS = 1_200
Environment = Callable[[str], Path]


def outside(**more: str) -> dict[str, str]:
    """This machine's environment with its index, certificates and caches, without what steers Python or Siltlog."""
    steers = ("PYTHON", "VIRTUAL_ENV", "SILT_")
    return {name: value for name, value in os.environ.items() if not name.startswith(steers)} | more


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    ran = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=outside(**more),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_SECONDS,
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3_000:]
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder, cwd=TOP)
    [built] = folder.glob("siltlog-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The folder with the programs of an environment that has the wheel with an extra, and nothing else."""

    @cache
    def make(extra: str) -> Path:
        folder = tmp_path_factory.mktemp(extra or "client")
        run(sys.executable, "-m", "venv", folder, cwd=folder)
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        quiet = ("--quiet", "--no-input", "--disable-pip-version-check")
        run(folder / "bin" / "python", "-m", "pip", "install", *quiet, wanted, cwd=folder)
        return folder / "bin"

    return make


@pytest.fixture(scope="module")
def url(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the environment with `[server]`."""
    folder = tmp_path_factory.mktemp("served")
    settings = {"SILT_DATA_DIR": str(folder / "data"), "SILT_PORT": "0", "SILT_SCHEDULE": "off"}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [environment("server") / "siltlog", "serve"],
            cwd=folder,
            env=outside(**settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert server.stdout is not None
    try:
        lines = iter(server.stdout.readline, "")
        found = next((match for line in lines if (match := re.match(r"listening on (\S+)", line))), None)
        assert found, (folder / "log").read_text("utf-8")
        yield found[1]
    finally:
        server.terminate()
        assert server.wait(60) == 0
        server.stdout.close()


CLIENT = """
import sys
from siltlog import Admin, Consumer, Producer
url, count = sys.argv[1], int(sys.argv[2])
with Admin(url) as admin:
    admin.create_topic("parcels", 2)
with Producer(url) as producer:
    for number in range(count):
        producer.send("parcels", str(number), key=str(number % 7))
with Consumer(url, group="depot", topics=["parcels"], stop_at="latest") as consumer:
    found = sorted(int(record.value) for record in consumer)
assert found == list(range(count)), len(found)
absent = {"pydantic", "starlette", "redis", "deltalake", "boto3", "pyspark", "aiohttp"}
for name in absent:
    try:
        __import__(name)
    except ImportError:
        continue
    raise SystemExit(f"the client's environment has {name}")
print("consumed", len(found))
"""


def test_a_client_and_a_server_from_environments_of_their_own(
    environment: Environment, url: str, tmp_path: Path
) -> None:
    client = environment("")
    assert run(client / "python", "-c", CLIENT, url, str(RECORDS), cwd=tmp_path) == f"consumed {RECORDS}\n"
    run(client / "silt", "publish", "parcels", "one more", "--key", "7", SILT_URL=url, cwd=tmp_path)
    said = run(client / "silt", "consume", "parcels", "--output", "value", SILT_URL=url, cwd=tmp_path)
    assert said.splitlines().count("one more") == 1
    assert "Run a server" in run(client / "silt", "--help", cwd=tmp_path)


@pytest.mark.parametrize(("option", "file"), [("--unit", "siltlog.service"), ("--compose", "compose.yaml")])
def test_a_server_is_set_up_with_what_starts_it(
    environment: Environment, tmp_path: Path, option: str, file: str
) -> None:
    silt = environment("server") / "silt"
    run(silt, "init", "--yes", option, file, cwd=tmp_path)
    assert str(tmp_path / "siltlog.toml") in (tmp_path / file).read_text("utf-8")


SPARK = """
import sys
import siltlog.spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
siltlog.spark.register(spark)
reader = spark.read.format("siltlog").option("url", sys.argv[1])
rows = reader.load("parcels").selectExpr("cast(value AS string) AS value").collect()
numbers = sorted(int(row.value) for row in rows if row.value.isdigit())
print("read", numbers == list(range(len(numbers))), len(numbers))
spark.stop()
"""


def test_spark_from_an_environment_of_its_own_reads_what_was_published(
    environment: Environment, url: str, tmp_path: Path
) -> None:
    python = environment("spark") / "python"
    said = run(python, "-c", SPARK, url, cwd=tmp_path, SILT_URL=url, PYSPARK_PYTHON=str(python))
    assert said.splitlines()[-1] == f"read True {RECORDS}"


def test_uv_installs_it_as_the_script_says_and_runs_it_without(
    wheel: Path, tool: Callable[[str], str], tmp_path: Path
) -> None:
    uv = Path(tool("uv"))
    home = {"HOME": str(tmp_path), "PATH": f"{uv.parent}{os.pathsep}{os.environ['PATH']}"}
    home |= {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    script = TOP / "infra" / "deploy" / "install.sh"
    digest = sha256(wheel.read_bytes()).hexdigest()
    for _ in range(2):
        said = run("sh", script, "--wheel", wheel, "--sha256", digest, "--no-init", cwd=tmp_path, **home)
        assert re.search(r"^silt, version ", said, re.MULTILINE)
    assert "Run a server" in run(tmp_path / "bin" / "siltlog", "serve", "--help", cwd=tmp_path)
    wanted = f"siltlog[server] @ {wheel.as_uri()}"
    assert "silt, version" in run(uv, "tool", "run", "--from", wanted, "siltlog", "--version", cwd=tmp_path, **home)
