"""Checks what Spark's jobs need. Without it a server works, and its tables get more and more files."""

from importlib.metadata import version
from importlib.util import find_spec
from urllib.parse import urlsplit

from siltlog.doctor.finding import Finding, State
from siltlog.infra.errors import SiltlogError
from siltlog.infra.settings.settings import ServerSettings
from siltlog.pipelines.setup.class_archive import find_class_archive
from siltlog.pipelines.spark.jars import COMMAND, DELTA, S3A, jars_of, spark_home
from siltlog.pipelines.spark.java import find_java


def check_spark(settings: ServerSettings) -> Finding:
    wanted: State = "wrong" if settings.schedule == "on" and settings.schedule_compact else "warning"
    try:
        spark_home()
    except SiltlogError:
        queries = "" if find_spec("duckdb") else ", query"
        said = f"no Spark: silt compact{queries} and replay --where do not run here"
        return Finding("spark", "warning", said, "pip install 'siltlog[spark]'")
    try:
        java = find_java()
    except SiltlogError as error:
        return Finding("spark", wanted, error.detail, "apt-get install openjdk-17-jre-headless")
    sets = (DELTA, S3A) if urlsplit(settings.root_uri).scheme == "s3" else (DELTA,)
    missing = [jars.name for jars in sets if jars_of(jars) is None]
    if missing:
        said = f"the first job downloads the jars of {' and '.join(missing)}"
        return Finding("spark", "warning", said, COMMAND)
    found = f"Spark {version('pyspark')} with Java {java.version}"
    if jars_of(S3A) is None or not find_class_archive().exists():
        return Finding("spark", "ok", f"{found}; jobs start in half the time after `{COMMAND}`")
    return Finding("spark", "ok", found)
