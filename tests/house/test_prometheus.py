"""A real Prometheus that scrapes a real server at work: every expression of every alert and panel gives data."""

import itertools
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml
from cluster_rig import cluster
from ports import free_port

from siltlog import Admin, Consumer, Producer
from siltlog.infra.deploy.grafana.make import DASHBOARDS

RULES = Path(__file__).parents[2] / "infra" / "deploy" / "prometheus" / "alerts.yml"
NOT_HERE = (
    "silt_requests_proxied_total",
    "silt_tls_not_after_timestamp_seconds",
    "silt_kafka_requests_total",
    "silt_kafka_errors_total",
    "silt_kafka_misplaced_batches_total",
    "silt_kafka_session_partitions",
)
"""There is no other node, no certificate, and nobody listens for Kafka's clients."""
pytestmark = [
    pytest.mark.client,
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="Prometheus is not installed: apt-get install prometheus"
    ),
]


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """Its address, while it scrapes `target` each second."""
    document = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "siltlog", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(document))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(30)


def asked(url: str, expression: str) -> list[object]:
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=10) as reply:
            return list(json.load(reply)["data"]["result"])
    except urllib.error.HTTPError as error:
        raise AssertionError((expression, error.read())) from error
    except urllib.error.URLError:
        return []  # it is still starting


def expressions() -> list[str]:
    found = []
    for dashboard in DASHBOARDS.values():
        for panel in dashboard.panels:
            found += [expression for expression, _ in panel.series]
    found = [re.sub(r'"\$\w+"', '".*"', expression.replace("$__rate_interval", "10s")) for expression in found]
    [group] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    for rule in group["rules"]:
        # A quiet alert gives nothing: it is asked for what it compares.
        found += [f"count({metric})" for metric in re.findall(r"\bsilt_\w+", rule["expr"])]
    return [expression for expression in found if not any(name in expression for name in NOT_HERE)]


@contextmanager
def at_work(url: str, root: str) -> Iterator[None]:
    """Records are published, read in groups and given up meanwhile; a stream is open, and a job runs."""
    ended = threading.Event()
    with Admin(url) as admin:
        admin.create_topic("orders", partitions=2)

    def publish() -> None:
        with Producer(url) as producer:
            for number in itertools.count():
                if ended.wait(0.05):
                    return
                producer.send("orders", value=str(number).encode(), key=b"k")

    def read() -> None:
        with Consumer(url, group="reads", topics=["orders"]) as consumer:
            while not ended.is_set():
                consumer.poll(timeout_ms=200)
                consumer.commit()

    def give_up() -> None:
        def fails(record: object) -> None:
            raise ValueError("it cannot be handled")

        with Consumer(url, group="fails", topics=["orders"]) as consumer:
            ender = threading.Thread(target=lambda: (ended.wait(), consumer.wakeup()))
            ender.start()
            consumer.run(fails, max_attempts=1)

    def retain() -> None:
        run = [Path(sys.executable).with_name("silt"), "retain", "--root", root, "--url", url]
        subprocess.run(run, check=True, capture_output=True)

    def follow() -> None:
        stream = urllib.request.urlopen(f"{url}/v1/topics/orders/tail", timeout=60)
        with stream:
            while not ended.is_set():
                stream.readline()

    def ask_in_vain() -> None:
        while not ended.wait(0.5):
            with suppress(urllib.error.HTTPError):
                urllib.request.urlopen(f"{url}/v1/topics/absent", timeout=60)

    threads = [threading.Thread(target=work) for work in (publish, read, give_up, retain, follow, ask_in_vain)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)


def test_every_expression_gives_data(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as nodes:
        url = nodes["n1"].url
        with prometheus(tmp_path, url.removeprefix("http://")) as prom, at_work(url, nodes.root):
            missing = expressions()
            deadline = time.monotonic() + 60
            while missing and time.monotonic() < deadline:
                time.sleep(1)
                missing = [expression for expression in missing if not asked(prom, expression)]
            assert missing == []
            firing = asked(prom, 'ALERTS{alertstate="firing",alertname!~"SiltDeadLetters|SiltGroupBehind"}')
            assert firing == []
