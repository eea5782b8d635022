"""The modules of terraform/ for a server and for EMR Serverless, without a provider.

Their arguments are held against bindings that were generated of the provider's schema, policies are read, a linter
looks, and the scripts of the machine run with AWS played.
"""

import ast
import base64
import json
import os
import re
import shutil
import socket
import subprocess
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from functools import cache as remember
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme
from s3_policies import FOLDER, blocks, parse, statements

from siltlog.infra.settings.settings import ServerSettings
from siltlog.server_process import ServerProcess

MODULES = FOLDER / "modules"
BOOT = MODULES / "server" / "boot"
ROOMS = [FOLDER, MODULES / "server", MODULES / "emr", FOLDER / "examples" / "whole"]
META = {"count", "for_each", "depends_on", "lifecycle", "provider"}
TERRAFORM = shutil.which("terraform")
needs_terraform = pytest.mark.skipif(TERRAFORM is None, reason="terraform is not on PATH")
rooms = pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.name)


def read(room: Path) -> dict[str, Any]:
    return parse("\n".join(file.read_text("utf-8") for file in sorted(room.glob("*.tf"))), {})


class Arguments(NamedTuple):
    """What a block takes."""

    required: set[str]
    nested: dict[str, str]
    """Argument -> class of the block that it is, or "" where it is a value."""


@pytest.fixture(scope="session")
def bindings(cache: Path) -> Path:
    wheels = sorted((cache / "terraform").glob("cdktf_cdktf_provider_aws-*.whl"))
    if not wheels:
        pytest.skip("the bindings of the provider are not there: tests/deploy/tools fetches them where they can be had")
    return wheels[-1]


@remember
def classes(bindings: Path, name: str) -> dict[str, Arguments]:
    """The classes of the bindings for a resource or data source; empty where there is none of the name."""
    with zipfile.ZipFile(bindings) as wheel:
        try:
            source = wheel.read(f"cdktf_cdktf_provider_aws/{name}/__init__.py").decode("utf-8")
        except KeyError:
            return {}
    made = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                named = zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)
                types = {each.arg: (ast.unparse(each.annotation or each), default is None) for each, default in named}
                made[node.name] = Arguments(
                    {name for name, (_, required) in types.items() if required},
                    {name: _block_of(text, node.name) for name, (text, _) in types.items()},
                )
    return made


def _block_of(annotation: str, owner: str) -> str:
    text = re.search(r"(?<![\w.])([A-Z]\w+)", annotation)
    return text[1] if text and text[1] != owner else ""


def wrong(bindings: Path, kind: str, body: dict[str, Any], *, data: bool = False) -> list[str]:
    """What of a resource's or data source's block its provider does not know, or lacks."""
    known = classes(bindings, f"data_{kind}" if data else kind.removeprefix("aws_"))
    [config] = [name for name in known if name.endswith("Config") and "provisioners" in known[name].nested] or [""]
    return [f"no such kind: {kind}"] if not config else list(_wrong(known, config, body, kind))


def _wrong(known: dict[str, Arguments], config: str, body: dict[str, Any], where: str) -> Iterator[str]:
    required, nested = known[config]
    given = {name: value for name, value in body.items() if name != "dynamic"}
    for dynamic in body.get("dynamic", []):
        given |= {name: block["content"] for name, block in dynamic.items()}
    yield from (f"{where}.{name} is lacking" for name in sorted(required - set(given)))
    for name, value in given.items():
        if name in META:
            continue
        if name not in nested:
            yield f"{where} has no {name}"
        elif nested[name] and isinstance(value, list):
            for block in value:
                if isinstance(block, dict):
                    yield from _wrong(known, nested[name], block, f"{where}.{name}")


def every(room: Path) -> Iterator[tuple[str, str, dict[str, Any], bool]]:
    project = read(room)
    for section in ("resource", "data"):
        for block in project.get(section, []):
            for kind, named in block.items():
                for name, body in named.items():
                    yield kind, name, body, section == "data"


@rooms
def test_the_provider_knows_each_argument(room: Path, bindings: Path) -> None:
    found = [
        f"{name}: {said}" for kind, name, body, data in every(room) for said in wrong(bindings, kind, body, data=data)
    ]
    assert found == []


def test_an_argument_that_is_mistyped_lacking_or_nested_elsewhere_is_found(bindings: Path) -> None:
    [volume] = [body for kind, _, body, _ in every(MODULES / "server") if kind == "aws_ebs_volume"]
    assert wrong(bindings, "aws_ebs_volume", {**volume, "encryptd": True}) == ["aws_ebs_volume has no encryptd"]
    lacking = {name: value for name, value in volume.items() if name != "availability_zone"}
    assert wrong(bindings, "aws_ebs_volume", lacking) == ["aws_ebs_volume.availability_zone is lacking"]
    [template] = [body for kind, _, body, _ in every(MODULES / "server") if kind == "aws_launch_template"]
    changed = json.loads(json.dumps(template).replace('"volume_size"', '"size"'))
    assert wrong(bindings, "aws_launch_template", changed) == [
        "aws_launch_template.block_device_mappings.ebs has no size"
    ]
    assert wrong(bindings, "aws_ebs_volum", volume) == ["no such kind: aws_ebs_volum"]


@pytest.mark.parametrize("name", ["server", "emr"])
def test_modules_say_what_they_take_and_give(name: str) -> None:
    project = read(MODULES / name)
    variables = {name: body for block in project["variable"] for name, body in block.items()}
    outputs = {name: body for block in project["output"] for name, body in block.items()}
    assert all(body.get("description") for body in [*variables.values(), *outputs.values()])
    assert all("validation" in body for name, body in variables.items() if name != "tags")
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert [each for each in [*variables, *outputs] if f"`{each}`" not in readme] == []
    assert (MODULES / name / "versions.tf").read_text("utf-8") == (FOLDER / "versions.tf").read_text("utf-8")


def test_the_example_says_what_modules_want() -> None:
    project = read(FOLDER / "examples" / "whole")
    for block in project["module"]:
        for name, body in block.items():
            room = (FOLDER / "examples" / "whole" / body["source"]).resolve()
            taken = {name: body for each in read(room)["variable"] for name, body in each.items()}
            given = set(body) - {"source", "count"}
            assert given <= set(taken), name
            assert {each for each, what in taken.items() if "default" not in what} <= given, name
            outputs = {each for output in read(room)["output"] for each in output}
            text = (FOLDER / "examples" / "whole" / "main.tf").read_text("utf-8")
            assert set(re.findall(rf"module\.{name}(?:\[\*\])?\.(\w+)", text)) <= outputs


def all_actions(room: Path, *policies: str) -> dict[str, list[tuple[list[str], bool]]]:
    """Action -> resources, and whether a condition ends it."""
    made: dict[str, list[tuple[list[str], bool]]] = {}
    for policy in policies:
        for each in statements(read(room), policy):
            for action in each["actions"]:
                made.setdefault(action, []).append((each["resources"], bool(each.get("condition"))))
    return made


def test_the_machine_may_do_what_its_start_needs_and_no_more() -> None:
    may = all_actions(MODULES / "server", "server")
    assert set(may) == {
        "ec2:AttachVolume", "secretsmanager:GetSecretValue", "cloudwatch:PutMetricData",
        "route53:ChangeResourceRecordSets", "kms:Decrypt", "kms:CreateGrant",
    }  # fmt: skip
    for action, grants in may.items():
        for resources, ended in grants:
            wide = [each for each in resources if str(each).endswith("*")] if isinstance(resources, list) else []
            assert ended or not wide, action
    text = "".join(file.read_text("utf-8") for file in BOOT.iterdir())
    asked = set(re.findall(r"aws (\w+ [a-z0-9-]+)", text))
    calls = {
        "ec2 attach-volume": "ec2:AttachVolume",
        "secretsmanager get-secret-value": "secretsmanager:GetSecretValue",
        "cloudwatch put-metric-data": "cloudwatch:PutMetricData",
        "route53 change-resource-record-sets": "route53:ChangeResourceRecordSets",
    }
    assert asked == set(calls), "what is called is what is allowed"


def test_the_jobs_and_their_schedule_may_do_what_they_need_and_no_more() -> None:
    room = MODULES / "emr"
    assert set(all_actions(room, "jobs")) == {
        "s3:GetObject", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents",
        "logs:DescribeLogGroups",
    }  # fmt: skip
    schedule = all_actions(room, "schedule")
    assert set(schedule) == {"emr-serverless:StartJobRun", "iam:PassRole"}
    assert schedule["iam:PassRole"] == [(["${aws_iam_role.jobs.arn}"], True)]
    for policy in ("assume_jobs", "assume_schedule"):
        [statement] = statements(read(room), policy)
        assert "aws:SourceAccount" in {condition["variable"] for condition in statement["condition"]}


def test_there_is_no_public_door_and_no_secret_in_the_state() -> None:
    project = read(MODULES / "server")
    ingress = blocks(project, "resource", "aws_vpc_security_group_ingress_rule")
    assert {body["for_each"] for body in ingress.values()} == {
        "${toset(var.client_security_group_ids)}", "${toset(var.client_cidr_blocks)}",
    }  # fmt: skip
    assert all(body["from_port"] == body["to_port"] == "${local.port}" for body in ingress.values())
    [template] = blocks(project, "resource", "aws_launch_template").values()
    assert template["metadata_options"][0]["http_tokens"] == "required"
    assert "network_interfaces" not in template and "key_name" not in template
    assert template["block_device_mappings"][0]["ebs"][0]["encrypted"] is True
    assert not blocks(project, "resource", "aws_secretsmanager_secret_version")


def test_the_volume_outlives_the_instance() -> None:
    project = read(MODULES / "server")
    [volume] = blocks(project, "resource", "aws_ebs_volume").values()
    assert (volume["encrypted"], volume["final_snapshot"]) == (True, True)
    assert volume["lifecycle"] == [{"prevent_destroy": True}]
    [group] = blocks(project, "resource", "aws_autoscaling_group").values()
    assert (group["min_size"], group["max_size"]) == (1, 1)
    assert group["instance_maintenance_policy"] == [{"min_healthy_percentage": 0, "max_healthy_percentage": 100}]


REASONS = {
    "CKV2_AWS_23": "the record's address is written by the machine that starts, not by Terraform",
    "CKV2_AWS_57": "what rotates a certificate or a secret is whoever issues it; the machine fetches them daily",
    "CKV2_AWS_62": "nobody listens to objects: readers follow the table's log",
    "CKV_AWS_144": "another region costs as much again; silt backup writes elsewhere",
    "CKV_AWS_18": "an access log is as large as the log; CloudTrail tells who did what where it is wanted",
    "CKV_AWS_297": "a schedule holds names, no data",
    "CKV_AWS_338": "what a merge of files said a year ago helps nobody; log_days says otherwise",
}


def test_a_linter_of_policies_finds_nothing_without_a_reason(tool: Callable[[str], str]) -> None:
    what = ["-d", str(FOLDER), "--framework", "terraform", "--compact", "--quiet", "-o", "json", "--skip-download"]
    ran = subprocess.run(
        [tool("checkov"), *what], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    report = json.loads(ran.stdout)
    assert report["summary"]["parsing_errors"] == 0 and report["summary"]["passed"] > 50
    checks = report["results"]["failed_checks"]
    failed = {check["check_id"]: f"{check['check_name']} ({check['resource']})" for check in checks}
    assert {check: text for check, text in failed.items() if check not in REASONS} == {}
    assert set(REASONS) - set(failed) == set(), "a reason for what is not found any more"


PLAYED = {
    "curl": """case "$*" in *instance-id) echo i-1;; *local-ipv4) echo 10.0.0.9;; *) echo t;; esac""",
    "aws": """case "$1 $2" in
  "ec2 attach-volume")  # the instance before still has it, once
    if [ -e "$TOP/busy" ]; then mkdir -p "$TOP/dev/disk/by-id"
      touch "$TOP/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol1"; else touch "$TOP/busy"; exit 254; fi;;
  "secretsmanager get-secret-value") cat "$TOP/values/${4##*/}";;
esac""",
    "python3.11": """mkdir -p "$3/bin"
printf '#!/bin/sh\necho pip "$@" >> "$TOP/said"' > "$3/bin/pip"; chmod +x "$3/bin/pip" """,
    "blkid": "exit 2",
    "mountpoint": "exit 1",
    **dict.fromkeys(["mkfs.xfs", "mount", "xfs_growfs", "dnf", "systemctl", "sleep"], ":"),
}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that takes the place of /, with programs that note how they are called and play AWS and systemd."""
    for folder in ("etc/siltlog", "etc/systemd/system", "opt/siltlog-aws", "bin", "values"):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in PLAYED.items():
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/bash\necho {name} "$@" >> "$TOP/said"\n{text}\n', "utf-8")
        program.chmod(0o755)
    for script in BOOT.glob("*.sh"):
        shutil.copy(script, tmp_path / "opt" / "siltlog-aws")
    settings = {
        "NAME": "silt", "AWS": "eu-central-1", "VOLUME": "vol-1", "ZONE": "Z1", "HOST": "log.example",
        "ROOT": "s3://lake/siltlog", "S3_REGION": "eu-central-1", "VERSION": "0.1.0", "COMPACTS": "yes",
    }  # fmt: skip
    values = "".join(f"{name}='{value}'\n" for name, value in settings.items())
    (tmp_path / "etc" / "siltlog" / "aws.env").write_text(values, "utf-8")
    certificates(tmp_path)
    return tmp_path


def certificates(machine: Path, *, key: bool = True) -> None:
    made = trustme.CA().issue_cert("log.example")
    made.cert_chain_pems[0].write_to_path(machine / "values" / "tls.crt")
    if key:
        made.private_key_pem.write_to_path(machine / "values" / "tls.key")
    (machine / "values" / "secret").write_text("s" * 44 + "\n", "utf-8")


def ran(machine: Path, script: str, **more: str) -> subprocess.CompletedProcess[str]:
    path = f"{machine / 'bin'}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", str(machine / "opt" / "siltlog-aws" / script)]
    environment = {"PATH": path, "TOP": str(machine), **more}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


def said(machine: Path, *programs: str) -> list[str]:
    lines = (machine / "said").read_text("utf-8").splitlines() if (machine / "said").exists() else []
    return [line for line in lines if line.split()[0] in programs]


def test_a_machine_starts_with_its_volume_its_secrets_and_its_name(machine: Path) -> None:
    done = ran(machine, "boot.sh")
    assert done.returncode == 0, done.stderr
    assert len(said(machine, "sleep")) == 2, "the volume was not free at once"
    assert [line.split()[0] for line in said(machine, "mkfs.xfs", "mount")] == ["mkfs.xfs", "mount"]
    assert said(machine, "pip")[0] == "pip install --quiet --no-input siltlog[server]==0.1.0"
    etc = machine / "etc" / "siltlog"
    for name in ("secret", "tls.crt", "tls.key"):
        assert (etc / name).read_bytes() == (machine / "values" / name).read_bytes()
        assert (etc / name).stat().st_mode & 0o777 == 0o600
    settings = tomllib.loads((etc / "siltlog.toml").read_text("utf-8"))
    environment = dict(line.split("=", 1) for line in (etc / "environment").read_text("utf-8").split())
    named = {name.removeprefix("SILT_").lower(): value for name, value in environment.items()}
    taken = ServerSettings(**settings, **named)
    assert (taken.auth, taken.hosts, taken.root_uri) == ("on", "log.example", "s3://lake/siltlog")
    [record] = [line for line in (machine / "said").read_text("utf-8").split("aws ") if line.startswith("route53")]
    batch = json.loads(record[record.index("{") : record.rindex("}") + 1])
    assert batch["Changes"][0]["ResourceRecordSet"]["ResourceRecords"] == [{"Value": "10.0.0.9"}]
    started = " ".join(said(machine, "systemctl"))
    assert "enable --now siltlog.service siltlog-measure.timer siltlog-secrets.timer" in started
    assert started.index("siltlog.service") < started.index("siltlog-compact.timer")
    for unit in ("siltlog-measure.timer", "siltlog-secrets.service", "siltlog.service.d/aws.conf"):
        assert (machine / "etc" / "systemd" / "system" / unit).read_text("utf-8").startswith("[Unit]\n")


def test_a_machine_whose_volume_has_a_file_system_keeps_it(machine: Path) -> None:
    (machine / "bin" / "blkid").write_text("#!/bin/bash\nexit 0\n", "utf-8")
    assert ran(machine, "boot.sh").returncode == 0
    assert said(machine, "mkfs.xfs") == []


def test_a_certificate_that_is_renewed_is_taken_with_its_key_alone(machine: Path) -> None:
    assert ran(machine, "secrets.sh").returncode == 0
    restarts = ["systemctl try-restart siltlog.service"]
    assert said(machine, "systemctl") == restarts
    assert ran(machine, "secrets.sh").returncode == 0
    assert said(machine, "systemctl") == restarts, "nothing changed"
    before = (machine / "etc" / "siltlog" / "tls.crt").read_bytes()
    certificates(machine, key=False)
    refused = ran(machine, "secrets.sh")
    assert refused.returncode == 1 and "silt/tls.key is not the key of silt/tls.crt" in refused.stderr
    assert (machine / "etc" / "siltlog" / "tls.crt").read_bytes() == before
    certificates(machine)
    assert ran(machine, "secrets.sh").returncode == 0
    assert said(machine, "systemctl") == restarts * 2


def measured(machine: Path, port: int) -> dict[str, float]:
    (machine / "bin" / "curl").unlink(missing_ok=True)
    (machine / "said").unlink(missing_ok=True)
    done = ran(machine, "measure.sh", PORT=str(port), DATA=str(machine))
    assert done.returncode == 0, done.stderr
    [line] = said(machine, "aws")
    assert line.startswith("aws cloudwatch put-metric-data --namespace Siltlog --metric-data MetricName=")
    found = re.findall(r"MetricName=(\w+),Value=([0-9.]+),Dimensions=\[\{Name=Name,Value=silt\}\]", line)
    return {name: float(value) for name, value in found}


def test_alarms_watch_what_a_server_tells(machine: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    server = ServerProcess(tmp_path / "data", {"metrics_port": port, "redis_url": "redis://127.0.0.1:1/0"})
    server.start()
    try:
        numbers = measured(machine, port)
        assert numbers["Ready"] == 1 and 0 <= numbers["WalUsedPercent"] < 70
    finally:
        server.stop()
    assert set(gone := measured(machine, port)) == {"Ready", "DiskUsedPercent"} and gone["Ready"] == 0
    alarms = read(MODULES / "server")["locals"]
    watched = {
        each["metric"]
        for block in alarms
        for each in block.get("alarms", {}).values()
        if "Siltlog" in each["namespace"]
    }
    assert watched == {"Ready", "WalUsedPercent", "DiskUsedPercent", "CertificateDays"}


@needs_terraform
def test_user_data_is_a_script_that_fits(tmp_path: Path) -> None:
    assert TERRAFORM is not None
    units = FOLDER.parent / "infra" / "deploy" / "systemd"
    files = {f"/opt/siltlog-aws/{path.name}": path for path in BOOT.glob("*.sh")}
    files |= {f"/etc/systemd/system/{path.name}": path for path in units.iterdir()}
    listed = ", ".join(f'"{name}" = file("{path}")' for name, path in files.items())
    rendered = f'templatefile("{BOOT}/user-data.sh.tftpl", {{settings = {{NAME = "silt"}}, files = {{{listed}}}}})'
    (tmp_path / "main.tf").write_text(
        f'output "plain" {{\n value = {rendered}\n}}\noutput "sent" {{\n value = base64gzip({rendered})\n}}\n', "utf-8"
    )
    for arguments in (["init"], ["apply", "-auto-approve"]):
        subprocess.run([TERRAFORM, *arguments, "-input=false"], cwd=tmp_path, check=True, capture_output=True)
    made = json.loads(subprocess.check_output([TERRAFORM, "output", "-json"], cwd=tmp_path))
    assert len(base64.b64decode(made["sent"]["value"])) < 16_384, "what EC2 takes"
    script = made["plain"]["value"].replace(" /etc/", f" {tmp_path}/etc/").replace(" /opt/", f" {tmp_path}/opt/")
    (tmp_path / "etc" / "systemd" / "system").mkdir(parents=True)
    (tmp_path / "opt").mkdir()
    subprocess.run(["bash", "-c", script.replace("exec bash", "test -f")], check=True)
    for name, path in files.items():
        assert Path(f"{tmp_path}{name}").read_bytes() == path.read_bytes()
    assert (tmp_path / "etc" / "siltlog" / "aws.env").read_text("utf-8") == "NAME='silt'\n"
