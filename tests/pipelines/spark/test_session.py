import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from siltlog.infra.errors import ConfigError
from siltlog.infra.store.store import open_store
from siltlog.pipelines.setup.class_archive import find_class_archive
from siltlog.pipelines.spark.session import s3a_settings, spark_session


class OnS3:
    """What `s3a_settings` asks of a store."""

    root_uri = "s3://lake/prefix"

    def __init__(self, **options: str) -> None:
        self.options = options

    def storage_options(self) -> dict[str, str]:
        return self.options


def test_settings_of_a_bucket_name_that_bucket() -> None:
    store: Any = OnS3(
        AWS_REGION="eu-1", AWS_ENDPOINT_URL="http://127.0.0.1:1", AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="key"
    )
    assert s3a_settings(store) == {
        "fs.s3a.bucket.lake.endpoint.region": "eu-1",
        "fs.s3a.bucket.lake.endpoint": "http://127.0.0.1:1",
        "fs.s3a.bucket.lake.path.style.access": "true",
        "fs.s3a.bucket.lake.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "fs.s3a.bucket.lake.access.key": "id",
        "fs.s3a.bucket.lake.secret.key": "key",
    }


def test_keys_that_expire_come_by_the_chain_of_the_aws_sdk() -> None:
    store: Any = OnS3(AWS_REGION="eu-1")
    assert s3a_settings(store) == {
        "fs.s3a.bucket.lake.endpoint.region": "eu-1",
        "fs.s3a.bucket.lake.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
        ),
    }


def test_a_local_root_needs_none(tmp_path: Path) -> None:
    assert s3a_settings(open_store(tmp_path.as_uri())) == {}


@pytest.mark.spark
def test_a_session_is_as_the_jobs_need_it(spark: Any, tmp_path: Path) -> None:
    with spark_session(open_store(tmp_path.as_uri())) as again:
        assert again.sparkContext is spark.sparkContext
    assert spark.sparkContext._jsc is not None, "a session that was there before is not ended"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.getConf().get("spark.driver.host") == "127.0.0.1"


SCRIPT = """
import os, sys
from pathlib import Path
from siltlog.infra.store.store import open_store
from siltlog.pipelines.spark import session
from siltlog.pipelines.spark.session import spark_session
before = set(os.environ.items())
for kind in ("as it is", "with a damaged archive of classes"):
    if kind != "as it is":
        # One that is cut crashes the JVM; what is no archive at all is passed over.
        session.class_archive = lambda *_: Path(sys.argv[2])
        Path(sys.argv[2]).write_bytes(Path(sys.argv[3]).read_bytes()[:100_000] if Path(sys.argv[3]).exists() else b"x")
    with spark_session(open_store(sys.argv[1])) as spark:
        jvm = spark.sparkContext._gateway.proc.pid
        if kind == "as it is":
            assert spark.range(3).count() == 3
            assert spark.catalog.databaseExists("default")
    changed = {name for name, _ in set(os.environ.items()) ^ before}
    assert changed <= {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}, changed  # pyspark leaves its own
    try:
        os.kill(jvm, 0)
    except ProcessLookupError:
        print("ended")
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_session_ends_with_its_jvm_and_says_nothing(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.jsa"
    command = [sys.executable, "-c", SCRIPT, (tmp_path / "lake").as_uri(), damaged, find_class_archive()]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (run.stdout, run.stderr, run.returncode) == ("ended\nended\n", "", 0)
    left = {path.name for path in tmp_path.iterdir()} - {"lake"}
    assert left == (set() if find_class_archive().exists() else {damaged.name})


@pytest.mark.spark
def test_a_start_that_fails_is_one_sentence(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "import siltlog.pipelines.spark.session as session\n"
        "from siltlog.infra.errors import ConfigError\n"
        "from siltlog.infra.store.store import open_store\n"
        "session.DRIVER_MEMORY = session.STARTING['spark.driver.memory'] = 'plenty'\n"
        "try:\n"
        "    with session.spark_session(open_store(sys.argv[1])): pass\n"
        "except ConfigError as error: print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, tmp_path.as_uri()], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert run.stdout.startswith("Spark did not start with ")
    assert "plenty" in run.stdout
    assert run.stdout.count("\n") == 1
    assert run.stderr == ""


def test_without_pyspark_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with (
        pytest.raises(ConfigError, match=r"pip install 'siltlog\[spark\]'"),
        spark_session(open_store(tmp_path.as_uri())),
    ):
        pass
