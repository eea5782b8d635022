"""The bucket and the policies of terraform/, checked without providers: who may do what, and what nobody may."""

import re
import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from s3_policies import FOLDER, blocks, names_of, parse, statements

from siltlog.infra import names

TERRAFORM = shutil.which("terraform")
KNOWN = names_of("lake", "base")
needs_terraform = pytest.mark.skipif(TERRAFORM is None, reason="terraform is not on PATH")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    files = sorted(FOLDER.glob("*.tf"))
    assert [file.name for file in files] == ["bucket.tf", "outputs.tf", "policies.tf", "variables.tf", "versions.tf"]
    return parse("\n".join(file.read_text("utf-8") for file in files), KNOWN)


def allowed(project: dict[str, Any], policy: str, action: str, path: str) -> bool:
    """Whether the policy allows `action` on the object `path` of the bucket (IAM's `*` spans folders)."""
    arn = f"arn:aws:s3:::lake/{path}"
    return any(
        action in statement["actions"] and any(fnmatchcase(arn, pattern) for pattern in statement["resources"])
        for statement in statements(project, policy)
    )


def too_wide(statement: dict[str, Any]) -> list[str]:
    """What an Allow statement grants beyond what can be named."""
    found = [action for action in statement["actions"] if "*" in action]
    found += [resource for resource in statement["resources"] if not resource.startswith(("arn:aws:s3:::lake", "${"))]
    found += [
        resource for resource in statement["resources"] if resource.endswith(("lake/*", "lake/base/*", "topics/*"))
    ]
    if "s3:ListBucket" in statement["actions"] and not statement.get("condition"):
        found.append("s3:ListBucket of the whole bucket")
    return found


@pytest.mark.parametrize("policy", ["server", "jobs"])
def test_policies_name_what_they_grant(project: dict[str, Any], policy: str) -> None:
    for statement in statements(project, policy):
        assert statement.get("effect", "Allow") == "Allow"
        assert too_wide(statement) in (
            [],
            ["arn:aws:s3:::lake/base/*"] if "s3:GetObject" in statement["actions"] else [],
        )
    actions = {action for statement in statements(project, policy) for action in statement["actions"]}
    assert actions <= {
        "s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload",
        "s3:DeleteObject", "kms:Decrypt", "kms:GenerateDataKey",
    }  # fmt: skip


def test_wide_statements_are_found() -> None:
    block = 'statement {\n actions = ["s3:*", "s3:ListBucket"]\n resources = ["*"]\n }'
    [statement] = statements(parse(f'data "aws_iam_policy_document" "wide" {{\n {block}\n }}', KNOWN), "wide")
    assert too_wide(statement) == ["s3:*", "*", "s3:ListBucket of the whole bucket"]


def test_listing_ends_at_the_root(project: dict[str, Any]) -> None:
    [listing] = [each for each in statements(project, "read") if "s3:ListBucket" in each["actions"]]
    assert listing["condition"] == [{"test": "StringLike", "variable": "s3:prefix", "values": ["base", "base/*"]}]


def stored() -> dict[str, str]:
    """One path of each kind of object under the root."""
    topic = f"base/{names.topic_path('flights')}"
    return {
        "data": f"{topic}/{names.partition_folder(3)}/a.parquet",
        "rewrite": f"{topic}/{names.rewrite_folder('run')}/{names.partition_folder(3)}/a.parquet",
        "commit": f"{topic}/{names.DELTA_LOG_FOLDER}/00000000000000000000.json",
        "state": f"{topic}/{names.state_object('id', 3, 0)}",
        "mark": f"base/{names.cleaned_object('flights', 3)}",
        "cluster": f"base/{names.CLUSTER_ID_OBJECT}",
        "run": f"base/{names.replay_plan_object('run')}",
        "lease": f"base/{names.schedule_object(1)}",
        "staged": f"base/{names.STAGING_FOLDER}/writer/files/run/a.arrow",
        "elsewhere": "other/file",
    }


@pytest.mark.parametrize(
    ("policy", "action", "kinds"),
    [
        ("server", "s3:GetObject", {"data", "rewrite", "commit", "mark", "state", "cluster", "run", "lease", "staged"}),
        ("server", "s3:PutObject", {"data", "rewrite", "commit", "mark", "state", "cluster"}),
        ("server", "s3:DeleteObject", {"commit", "mark", "state"}),
        ("jobs", "s3:GetObject", {"data", "rewrite", "commit", "mark", "state", "cluster", "run", "lease", "staged"}),
        ("jobs", "s3:PutObject", {"rewrite", "commit", "mark", "run", "lease", "staged"}),
        ("jobs", "s3:DeleteObject", {"data", "rewrite", "commit", "mark", "state", "run", "lease", "staged"}),
    ],
)
def test_who_may_do_what(project: dict[str, Any], policy: str, action: str, kinds: set[str]) -> None:
    assert {kind for kind, path in stored().items() if allowed(project, policy, action, path)} == kinds


def test_nothing_is_public(project: dict[str, Any]) -> None:
    [block] = blocks(project, "resource", "aws_s3_bucket_public_access_block").values()
    switches = ("block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets")
    assert {switch: block[switch] for switch in switches} == dict.fromkeys(switches, True)
    [ownership] = blocks(project, "resource", "aws_s3_bucket_ownership_controls").values()
    assert ownership["rule"] == [{"object_ownership": "BucketOwnerEnforced"}]


def test_only_tls(project: dict[str, Any]) -> None:
    [policy] = blocks(project, "resource", "aws_s3_bucket_policy").values()
    assert policy["policy"] == "${data.aws_iam_policy_document.bucket.json}"
    [statement] = statements(project, "bucket")
    assert (statement["effect"], statement["actions"]) == ("Deny", ["s3:*"])
    assert statement["principals"] == [{"type": "*", "identifiers": ["*"]}]
    assert statement["resources"] == ["arn:aws:s3:::lake", "arn:aws:s3:::lake/*"]
    assert statement["condition"] == [{"test": "Bool", "variable": "aws:SecureTransport", "values": ["false"]}]


def test_objects_are_encrypted(project: dict[str, Any]) -> None:
    [encryption] = blocks(project, "resource", "aws_s3_bucket_server_side_encryption_configuration").values()
    [default] = encryption["rule"][0]["apply_server_side_encryption_by_default"]
    assert "AES256" in default["sse_algorithm"]
    assert "aws:kms" in default["sse_algorithm"]


def test_no_rule_touches_a_current_object(project: dict[str, Any]) -> None:
    [lifecycle] = blocks(project, "resource", "aws_s3_bucket_lifecycle_configuration").values()
    harmless = {"abort_incomplete_multipart_upload", "noncurrent_version_expiration"}
    only_markers = [{"expired_object_delete_marker": True}]
    assert all(rule["status"] == "Enabled" and rule["filter"] == [{}] for rule in lifecycle["rule"])
    for rule in lifecycle["rule"]:
        assert set(rule) - {"id", "status", "filter"} <= {*harmless, "expiration"}
        assert rule.get("expiration", only_markers) == only_markers
    assert any("abort_incomplete_multipart_upload" in rule for rule in lifecycle["rule"])
    # Versions are kept, so something must end them.
    [versioning] = blocks(project, "resource", "aws_s3_bucket_versioning").values()
    assert versioning["versioning_configuration"] == [{"status": "Enabled"}]
    assert any("noncurrent_version_expiration" in rule for rule in lifecycle["rule"])


def test_the_bucket_outlives_a_careless_plan(project: dict[str, Any]) -> None:
    [bucket] = blocks(project, "resource", "aws_s3_bucket").values()
    assert bucket["lifecycle"] == [{"prevent_destroy": True}]
    assert not bucket.get("force_destroy", False)


def test_variables_and_outputs_are_described(project: dict[str, Any]) -> None:
    variables = {name: body for block in project["variable"] for name, body in block.items()}
    outputs = {name: body for block in project["output"] for name, body in block.items()}
    assert set(outputs) == {"bucket", "region", "root_uri", "server_policy_arn", "jobs_policy_arn"}
    assert all(body.get("description") for body in [*variables.values(), *outputs.values()])
    assert all("validation" in body for name, body in variables.items() if name != "tags")
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert [name for name in [*variables, *outputs] if f"`{name}`" not in readme] == []


def test_providers_are_pinned(project: dict[str, Any]) -> None:
    [block] = project["terraform"]
    assert block["required_version"]
    [providers] = block["required_providers"]
    assert list(providers) == ["aws"]
    assert "<" in providers["aws"]["version"]


def terraform(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    assert TERRAFORM is not None
    return subprocess.run(
        [TERRAFORM, *arguments], cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


@needs_terraform
def test_format() -> None:
    ran = terraform("fmt", "-check", "-diff", "-recursive", folder=FOLDER)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_terraform
@pytest.mark.slow
def test_variables_refuse_what_cannot_work(tmp_path: Path) -> None:
    # Alone, variables.tf needs no provider: terraform itself can judge the values.
    shutil.copy(FOLDER / "variables.tf", tmp_path)
    ran = terraform("init", "-input=false", "-no-color", folder=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr

    def refused(**values: str) -> set[str]:
        flags = [f"-var={name}={value}" for name, value in {"bucket_name": "acme-silt", **values}.items()]
        planned = terraform("plan", "-input=false", "-no-color", "-lock=false", *flags, folder=tmp_path)
        named = set(re.findall(r'^\s*\d+: variable "(\w+)"', planned.stderr, re.MULTILINE))
        assert bool(named) == (planned.returncode != 0), planned.stdout + planned.stderr
        return named

    key = "arn:aws:kms:eu-central-1:123456789012:key/6f1c"
    assert refused() == set()
    assert refused(prefix="data/siltlog", kms_key_arn=key, undelete_days="30", name="silt-2") == set()
    assert refused(bucket_name="Acme.Silt", prefix="/siltlog/", undelete_days="0", name="", kms_key_arn="alias/x") == {
        "bucket_name", "prefix", "undelete_days", "name", "kms_key_arn",
    }  # fmt: skip
