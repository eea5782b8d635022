"""The Helm chart: what it makes of values, what it refuses, and that the server takes what its manifests say."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import jsonschema
import pytest
import yaml
from ports import free_port
from secured_cluster_rig import secured_cluster

from siltlog.cli.main import COMMANDS
from siltlog.infra.errors import ConfigError
from siltlog.infra.names import ENV_CONFIG, ENV_OF_CLIENTS
from siltlog.infra.settings.loading import load
from siltlog.server_process import ServerProcess

DEPLOY = Path(__file__).parents[2] / "infra" / "deploy"
CHART = DEPLOY / "helm" / "siltlog"
EXAMPLES = sorted((DEPLOY / "helm" / "examples").glob("*.yaml"))
ALL = {
    "root": "s3://b/p",
    "replicas": 5,
    "redis": {"url": "redis://r:6379", "passwordSecret": "r"},
    "tls": {"secretName": "t", "ownAuthority": True},
    "auth": {"secretName": "s"},
    "trustedProxies": ["10.0.0.0/8"],
    "kafka": {"enabled": True},
    "s3": {"endpoint": "http://s3:9000", "region": "r", "credentialsSecret": "c"},
    "ingress": {"enabled": True, "host": "silt.example"},
    "networkPolicy": {"from": [{"namespaceSelector": {}}]},
    "metrics": {"serviceMonitor": {"enabled": True}, "rules": {"enabled": True}},
    "compaction": {"enabled": True, "tokenSecret": "t"},
    "settings": {"flush_ms": 500, "flush_bytes": 100_000_000, "schedule": {"retain": "off"}},
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"disk": "ssd"},
}
SECRET = re.compile(r"(?i)password|token|secret|key")

Document = dict[str, Any]
Render = Callable[[Document], list[Document]]


@pytest.fixture(scope="module")
def render(tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Render:
    helm, folder = tool("helm"), tmp_path_factory.mktemp("values")

    def made(values: Document) -> list[Document]:
        file = folder / "values.json"
        file.write_text(json.dumps(values))
        program = [helm, "template", "silt", CHART, "--namespace", "siltlog", "--kube-version", "1.34"]
        ran = subprocess.run([*program, "--values", file], capture_output=True, text=True, check=False)
        if ran.returncode:
            raise ValueError(ran.stderr)
        return [document for document in yaml.safe_load_all(ran.stdout) if document]

    return made


def values_of(example: Path) -> Document:
    found: Document = yaml.safe_load(example.read_text("utf-8"))
    return found


VALUES = {example.stem: values_of(example) for example in EXAMPLES} | {"all": ALL}


@pytest.fixture(params=VALUES)
def manifests(render: Render, request: pytest.FixtureRequest) -> list[Document]:
    return render(VALUES[request.param])


def of_kind(manifests: list[Document], kind: str) -> list[Document]:
    return [each for each in manifests if each["kind"] == kind]


def pods(manifests: list[Document]) -> Iterator[Document]:
    for each in manifests:
        if each["kind"] == "StatefulSet":
            yield each["spec"]["template"]["spec"]
        elif each["kind"] == "CronJob":
            yield each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        elif each["kind"] == "Pod":
            yield each["spec"]


def test_it_is_linted(tool: Callable[[str], str]) -> None:
    for example in EXAMPLES:
        ran = subprocess.run(
            [tool("helm"), "lint", "--strict", CHART, "--values", example], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_manifests_are_those_of_the_chart(tool: Callable[[str], str], tmp_path: Path) -> None:
    folder = DEPLOY / "kubernetes"
    subprocess.run([folder / "render.sh", tmp_path], env={**os.environ, "HELM": tool("helm")}, check=True)
    made = {file.name: file.read_text("utf-8") for file in tmp_path.iterdir()}
    assert made == {file.name: file.read_text("utf-8") for file in folder.glob("*.yaml")}, "run render.sh"


def test_kubernetes_knows_every_field(manifests: list[Document], tool: Callable[[str], str], tmp_path: Path) -> None:
    file = tmp_path / "manifests.yaml"
    theirs = [each for each in manifests if each["apiVersion"] != "monitoring.coreos.com/v1"]
    file.write_text(yaml.safe_dump_all(theirs))
    program = [tool("kubernetes-validate"), "--strict", "--kubernetes-version", "1.34", file]
    ran = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def closed(schema: Any) -> Any:
    """The schema of a definition, where also a field that it does not name is a fault."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(value) for name, value in schema.items()}
    if "pattern" in made:
        made["pattern"] = made["pattern"].replace("^(?i)", "(?i)^")  # Python wants flags first
    open_to_all = made.get("x-kubernetes-preserve-unknown-fields") or made.get("x-kubernetes-int-or-string")
    if isinstance(made.get("properties"), dict) and not open_to_all:
        made.setdefault("additionalProperties", False)
    return made


def defined(cache: Path) -> dict[str, Any]:
    """The schemas of the operator's kinds that the chart makes, by kind."""
    files = sorted((cache / "definitions").glob("*.yaml"))
    if not files:
        pytest.skip("the operator's definitions are not there: tests/deploy/tools fetches them where it can")
    found = {}
    for file in files:
        spec = yaml.safe_load(file.read_text("utf-8"))["spec"]
        [version] = [each for each in spec["versions"] if each["name"] == "v1"]
        found[spec["names"]["kind"]] = closed(version["schema"]["openAPIV3Schema"])
        # What every object has is described elsewhere.
        found[spec["names"]["kind"]]["properties"]["metadata"] = {}
    return found


def test_the_operator_of_prometheus_knows_every_field(render: Render, cache: Path) -> None:
    schemas = defined(cache)
    theirs = [each for each in render(ALL) if each["apiVersion"] == "monitoring.coreos.com/v1"]
    assert {each["kind"] for each in theirs} == set(schemas)
    for each in theirs:
        jsonschema.validate(each, schemas[each["kind"]])
        each["spec"]["no_such_field"] = 1
        with pytest.raises(jsonschema.ValidationError, match="no_such_field"):
            jsonschema.validate(each, schemas[each["kind"]])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 2}, "replicas"),
        ({"replicas": 3}, "several nodes share one root"),
        ({"replicas": 3, "root": "s3://b/p"}, "all nodes must see the same groups"),
        ({"replicas": 3, "root": "s3://b/p", "redis": {"url": "redis://r:1"}}, "prove to each other"),
        ({}, "starts there with TLS only"),
        ({"insecure": ["no-tls"], "auth": {"enabled": False}}, "everybody who reaches the server"),
        ({"insecure": ["nothing"]}, "insecure"),
        ({"root": "/srv/lake"}, "root"),
        ({"insecure": ["no-tls"], "compaction": {"enabled": True}}, "another pod cannot reach tables"),
        (
            {"insecure": ["no-tls"], "root": "s3://b/p", "compaction": {"enabled": True}},
            "needs an API key for that",
        ),
        ({"insecure": ["no-tls"], "settings": {"drain_ms": 90_000}}, "too short for drain_ms of 90000"),
        ({"insecure": ["no-tls"], "ingress": {"enabled": True}}, "only for names that it knows"),
        ({"insecure": ["no-tls"], "ingress": {"enabled": True, "host": "h"}}, "which the policy keeps out"),
        (
            {
                "replicas": 3,
                "root": "s3://b/p",
                "redis": {"url": "redis://r:1"},
                "auth": {"enabled": False},
                "insecure": ["no-tls", "no-auth"],
            },
            "prove to each other",
        ),
        ({"trustedProxies": ["10.0.0.0/8"], "kafka": {"enabled": True}}, "no proxy ends TLS for Kafka's protocol"),
        ({"insecure": ["no-tls"], "environment": {"AWS_SECRET_ACCESS_KEY": "x"}}, "AWS_SECRET_ACCESS_KEY"),
        ({"insecure": ["no-tls"], "redis": {"url": "redis://user:word@host:1"}}, "redis"),
        ({"replica": 3}, "replica"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(render: Render, values: Document, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        render(values)


def test_pods_may_do_no_more_than_they_must(manifests: list[Document]) -> None:
    for pod in pods(manifests):
        assert pod["enableServiceLinks"] is False
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert container["args"][0] in COMMANDS
            mounts = {mount["name"] for mount in container["volumeMounts"]} if "volumeMounts" in container else set()
            claims = {
                each["metadata"]["name"]
                for each in of_kind(manifests, "StatefulSet")[0]["spec"]["volumeClaimTemplates"]
            }
            assert mounts <= {volume["name"] for volume in pod.get("volumes", ())} | claims


def test_whole_numbers_stay_whole(render: Render) -> None:
    assert settings_of(render(ALL)) == ALL["settings"]
    assert {type(value) for value in settings_of(render(ALL)).values()} == {int, dict}


def test_no_secret_is_in_a_variable(manifests: list[Document]) -> None:
    for variable in chain.from_iterable(c.get("env", ()) for pod in pods(manifests) for c in pod["containers"]):
        if SECRET.search(variable["name"]) and "value" in variable:
            assert variable["value"].startswith("/etc/siltlog/"), variable


def test_a_stop_has_the_time_that_it_takes_and_proxies_hear_of_it_first(manifests: list[Document]) -> None:
    (pod,) = (each["spec"]["template"]["spec"] for each in of_kind(manifests, "StatefulSet"))
    (container,) = pod["containers"]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
    drain_s = settings_of(manifests).get("drain_ms", 20_000) / 1000
    assert pod["terminationGracePeriodSeconds"] >= 5 + drain_s + 20
    assert of_kind(manifests, "PodDisruptionBudget")[0]["spec"]["maxUnavailable"] == 1


def test_ports_and_selectors_fit(manifests: list[Document]) -> None:
    (stateful,) = of_kind(manifests, "StatefulSet")
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    names = {port["name"] for port in stateful["spec"]["template"]["spec"]["containers"][0]["ports"]}
    for service in of_kind(manifests, "Service"):
        assert service["spec"]["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names
    assert stateful["spec"]["serviceName"] in {each["metadata"]["name"] for each in of_kind(manifests, "Service")}
    for job in of_kind(manifests, "CronJob"):
        others = job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
        assert not labels.items() >= others.items() and job["spec"]["concurrencyPolicy"] == "Forbid"
        selectors = [each["spec"]["selector"] for each in of_kind(manifests, "Service")]
        assert not any(selector.items() <= others.items() for selector in selectors), "no client is sent to a job"


def settings_of(manifests: list[Document]) -> Document:
    (config,) = of_kind(manifests, "ConfigMap")
    return tomllib.loads(config["data"]["siltlog.toml"])


def environment_of(container: Document, pod: str) -> dict[str, str]:
    """Makes it as Kubernetes does: earlier variables are known to later ones."""
    found: dict[str, str] = {}
    for variable in container["env"]:
        value = pod if "valueFrom" in variable else variable["value"]
        found[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], value)
    return found


def test_the_server_knows_every_variable_and_takes_every_value(
    manifests: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stateful,) = of_kind(manifests, "StatefulSet")
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    environment = environment_of(container, "silt-siltlog-0")
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for name, value in environment.items():
        if value.startswith("/etc/siltlog/"):
            assert str(Path(value).parent) in mounts, f"{name} is in no volume"
        if name.startswith("SILT_"):
            monkeypatch.setenv(name, value)
    config = tmp_path / "siltlog.toml"
    config.write_text(of_kind(manifests, "ConfigMap")[0]["data"]["siltlog.toml"])
    monkeypatch.setenv(ENV_CONFIG, str(config))
    monkeypatch.delenv("SILT_REDIS_PASSWORD_FILE", raising=False)
    loaded = load().settings
    assert loaded.node_id == "silt-siltlog-0"
    assert loaded.advertise_url.endswith("://silt-siltlog-0.silt-siltlog-nodes.siltlog.svc.cluster.local:7070")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    if "kafka" in ports:
        assert loaded.kafka_listen == f"0.0.0.0:{ports['kafka']}"
        assert loaded.kafka_advertise == f"{urlsplit(loaded.advertise_url).hostname}:{ports['kafka']}"
    assert (loaded.cluster == "on") is (stateful["spec"]["replicas"] > 1)
    for job in of_kind(manifests, "CronJob"):
        (worker,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        unknown = {each["name"] for each in worker["env"] if each["name"].startswith("SILT_")} - set(ENV_OF_CLIENTS)
        assert unknown <= {"SILT_ROOT", "SILT_S3_ENDPOINT", "SILT_S3_REGION"}
        with pytest.raises(ConfigError):
            monkeypatch.setenv("SILT_NO_SUCH", "1")
            load()
        monkeypatch.delenv("SILT_NO_SUCH")


def test_a_server_starts_so_and_answers_its_probes(render: Render, tmp_path: Path) -> None:
    manifests = render(VALUES["inside"])
    (container,) = of_kind(manifests, "StatefulSet")[0]["spec"]["template"]["spec"]["containers"]
    environment = environment_of(container, "silt-siltlog-0")
    own = {"HOST", "PORT", "CONFIG", "DATA_DIR", "METRICS_PORT"}
    settings = {
        name[5:].lower(): value
        for name, value in environment.items()
        if name.startswith("SILT_") and name[5:] not in own
    }
    server = ServerProcess(tmp_path / "data", settings | {"metrics_port": free_port()})
    server.start()
    try:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = container[probe]["httpGet"]
            headers = {field["name"]: field["value"] for field in asked["httpHeaders"]}
            url = f"http://127.0.0.1:{server._settings['metrics_port']}{asked['path']}"
            with urlopen(Request(url, headers=headers)) as reply:
                assert reply.status == 200
    finally:
        server.stop()


PLACES = {
    *(
        "HOST",
        "HOSTS",
        "PORT",
        "CONFIG",
        "DATA_DIR",
        "NODE_ID",
        "ADVERTISE_URL",
        "SECRET_FILE",
        "AUTH",
        "ROOT",
        "CLUSTER",
    ),
    *("TLS_CERT", "TLS_KEY", "TLS_PEER_CA", "S3_ENDPOINT", "REDIS_URL", "REDIS_PASSWORD_FILE", "METRICS_HOST"),
    "METRICS_PORT",
}
"""What is elsewhere on one machine: names, addresses and files."""


def test_three_nodes_form_a_cluster_so_and_go_on_without_one(render: Render, tmp_path: Path) -> None:
    manifests = render(VALUES["three"])
    (container,) = of_kind(manifests, "StatefulSet")[0]["spec"]["template"]["spec"]["containers"]
    environment = environment_of(container, "silt-siltlog-0")
    assert environment["SILT_CLUSTER"] == environment["SILT_AUTH"] == "on"
    own = {name[5:] for name in environment if name.startswith("SILT_")} - PLACES
    settings = {name.lower(): environment[f"SILT_{name}"] for name in own} | settings_of(manifests)
    with secured_cluster(tmp_path, 3, **settings) as secured:
        secured.admin.create("parcels", 1)
        secured.nodes.until(lambda: secured.owner("parcels"), "the topic has an owner")
        owner = secured.owner("parcels")
        for caller in secured.all(secured.token):
            assert caller.publish("parcels", {"value": "first"}).status == 200
        secured.nodes[owner].server.kill()
        caller = secured.all(secured.token)[0]
        secured.nodes.until(lambda: caller.publish("parcels", {"value": "after"}).status == 200, "another owns it", 30)

        def values() -> list[str]:
            return [record["value"] for record in caller.read("parcels", 0, "values=text")]

        # Who does not own it is told how its end moves a moment later.
        secured.nodes.until(lambda: values() == ["first"] * 3 + ["after"], "it has all of them, once", 10)
