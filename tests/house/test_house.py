"""The rules of CONTRIBUTING.md that a program can check, over the files of the project."""

import ast
import fnmatch
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from siltlog.infra.names import ENV_CONFIG, ENV_OF_CLIENTS
from siltlog.infra.settings.settings import ServerSettings

TOP = Path(__file__).parents[2]
ROOMS = ("infra", "ingest", "consumers", "pipelines")
LINES_MAX = 600
FUNCTION_LINES_MAX = 100

REGISTRIES = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|maven\.org|maven\.apache\.org|anaconda\.org|npmjs\.(?:org|com)|"
    r"registry\.terraform\.io|proxy\.golang\.org|crates\.io)\b",
    re.IGNORECASE,
)
MACHINE_PATH = re.compile(r"(?<![\w.}/*-])(?:file://)?/(?:root|home|Users|work)/\w")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
SETTING = re.compile(r"\bSILT_[A-Z][A-Z0-9_]*[A-Z0-9]\b")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
NO_NOUN = re.compile(r"utils?|helpers?|managers?|common|misc")


def project_files() -> list[Path]:
    """What is tracked; where git does not say, what .gitignore does not name."""
    if (TOP / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, capture_output=True, check=False)
        if listed.returncode == 0:
            paths = [TOP / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
            return [path for path in paths if path.is_file() and not path.is_symlink()]
    ignored = [line.rstrip("/") for line in (TOP / ".gitignore").read_text("utf-8").split()]
    found = []
    for folder, folders, names in os.walk(TOP):
        folders[:] = [name for name in folders if not any(fnmatch.fnmatch(name, each) for each in ignored)]
        kept = [name for name in names if not any(fnmatch.fnmatch(name, each) for each in ignored)]
        found += [path for path in (Path(folder) / name for name in kept) if not path.is_symlink()]
    return found


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Path below the top -> text, of every file of the project that is text."""
    found = {}
    for path in project_files():
        data = path.read_bytes()
        if b"\0" not in data:
            found[path.relative_to(TOP).as_posix()] = data.decode("utf-8")
    assert {"pyproject.toml", "infra/names.py"} <= set(found)
    return found


def modules(texts: dict[str, str]) -> Iterator[tuple[str, str]]:
    for path, text in texts.items():
        if path.endswith(".py") and path.split("/")[0] in (*ROOMS, "siltlog"):
            yield path, text


def hits(pattern: re.Pattern[str], path: str, text: str) -> list[str]:
    return [f"{path}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]}" for hit in pattern.finditer(text)]


ENVIRONMENT_SEAMS = ("infra/settings/loading.py", "infra/client/address.py", "infra/tracing/opening.py")
CLOCK_SEAM = "infra/clock.py"
# Handing the whole environment to a child, or setting a variable for one, reads no setting.
READS = re.compile(r"os\.(?:getenv|environb|environ\.(?:get|setdefault|items|values))")
TICKS = re.compile(r"time\.\w+|(?:datetime\.)?(?:datetime|date)\.(?:now|utcnow|today)")
ROLLS = re.compile(r"random\.[a-z]\w*")


def dotted(node: ast.AST) -> str:
    """`a.b.c` as it stands there; empty for what is more than names."""
    if isinstance(node, ast.Attribute):
        first = dotted(node.value)
        return f"{first}.{node.attr}" if first else ""
    return node.id if isinstance(node, ast.Name) else ""


@cache
def parsed(path: str, text: str) -> ast.Module:
    return ast.parse(text, path)


def seams_passed(path: str, text: str) -> list[str]:
    """Reads of the environment, of a clock or of the shared random generator outside the module that owns them."""
    found = []
    for node in ast.walk(parsed(path, text)):
        uses: list[str] = []
        reads = False
        if isinstance(node, ast.Attribute):
            uses = [dotted(node)]
        elif isinstance(node, ast.ImportFrom):
            uses = [f"{node.module}.{alias.name}" for alias in node.names]
            reads = not {"os.environ", "os.getenv"}.isdisjoint(uses)
        elif isinstance(node, ast.Subscript):
            reads = isinstance(node.ctx, ast.Load) and dotted(node.value) == "os.environ"
        elif isinstance(node, ast.Compare):
            reads = any(dotted(each) == "os.environ" for each in node.comparators)
        reads |= any(READS.fullmatch(use) for use in uses)
        ticks = any(TICKS.fullmatch(use) for use in uses)
        rolls = any(ROLLS.fullmatch(use) for use in uses)
        if (reads and path not in ENVIRONMENT_SEAMS) or (ticks and path != CLOCK_SEAM) or rolls:
            found.append(f"{path}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}")
    return found


def too_long(path: str, text: str) -> list[str]:
    lines = text.count("\n")
    found = [f"{path}: {lines} lines"] if lines > LINES_MAX else []
    for node in ast.walk(parsed(path, text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found.append(f"{path}:{node.lineno}: {node.name} has {lines} lines")
    return found


def broken_links(path: str, text: str) -> list[str]:
    return [f"{path}: {link}" for link in LINK.findall(text) if not (TOP / path).parent.joinpath(link).exists()]


def unknown_settings(path: str, text: str, known: set[str]) -> list[str]:
    return [hit for hit in hits(SETTING, path, text) if hit.rsplit(" ", 1)[-1] not in known]


def unpinned(requirements: list[str], lock: str) -> list[str]:
    """Requirements that the lock does not satisfy, and whatever in it says where to download from."""
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", lock, re.MULTILINE))
    versions = {canonicalize_name(name): version for name, version in pins.items()}
    found = []
    for text in requirements:
        wanted = Requirement(text)
        version = versions.get(canonicalize_name(wanted.name))
        if version is None or not wanted.specifier.contains(version, prereleases=True):
            found.append(f"{text} (pinned: {version})")
    blocks = re.split(r"^(?=[\w.-]+(?:\[[\w,-]+\])?==)", lock, flags=re.MULTILINE)
    found += [f"{block.split()[0]} has no hash" for block in blocks if "==" in block and "--hash=sha256:" not in block]
    return found + re.findall(r"\S*://\S*|--(?:extra-)?index-url.*|--find-links.*", lock)


BESIDE_THE_TREE = {
    "clients": "programs by clients of others, and what is played with them",
    "contracts": "what is shipped for tests and the real thing, by the same assertions",
    "deploy": "images, units, proxies and charts",
    "faults": "kills, full disks, stores that go away",
    "golden": "what servers of each release have left, opened by this one",
    "house": "what holds for the whole tree",
    "rigs": "what tests are made of",
}
"""Folders of tests/ that mirror no room, and what is in them."""


def unmirrored(tests: list[str], there: set[str]) -> list[str]:
    """Tests that are not `{folder}/test_{module}.py`, or with `_{aspect}`, of a module or folder that is there."""
    found = []
    for path in tests:
        folder, name = path.removeprefix("tests/").rsplit("/", 1)
        subject = f"{folder}/{name.removeprefix('test_').removesuffix('.py')}"
        ends = [at for at, letter in enumerate(f"{subject}_") if letter == "_"]
        if folder.split("/")[0] not in BESIDE_THE_TREE and there.isdisjoint(subject[:end] for end in ends):
            found.append(path)
    return found


def test_no_file_names_a_package_registry(texts: dict[str, str]) -> None:
    assert [hit for path, text in texts.items() for hit in hits(REGISTRIES, path, text)] == []


def test_no_file_names_a_path_of_one_machine(texts: dict[str, str]) -> None:
    assert [hit for path, text in texts.items() for hit in hits(MACHINE_PATH, path, text)] == []


def test_nothing_is_left_unfinished(texts: dict[str, str]) -> None:
    others = {path: text for path, text in texts.items() if path != "tests/house/test_house.py"}
    assert [hit for path, text in others.items() for hit in hits(UNFINISHED, path, text)] == []


def test_every_setting_is_declared(texts: dict[str, str]) -> None:
    known = {f"SILT_{name.upper()}" for name in ServerSettings.model_fields}
    # Those that are no setting of the server: where its file is, and how clients find it.
    known |= {ENV_CONFIG, *ENV_OF_CLIENTS}
    readers = [(path, text) for path, text in texts.items() if not path.startswith("tests/")]
    assert [hit for path, text in readers for hit in unknown_settings(path, text, known)] == []


def test_only_the_seams_read_environment_clock_and_randomness(texts: dict[str, str]) -> None:
    assert [hit for path, text in modules(texts) for hit in seams_passed(path, text)] == []


def test_modules_and_functions_stay_short(texts: dict[str, str]) -> None:
    assert [hit for path, text in modules(texts) for hit in too_long(path, text)] == []


def test_modules_are_named_by_a_noun(texts: dict[str, str]) -> None:
    words = {path: re.split(r"[/_.]", path) for path, _ in modules(texts)}
    assert [path for path, parts in words.items() if any(NO_NOUN.fullmatch(part) for part in parts)] == []


def test_tests_mirror_the_tree(texts: dict[str, str]) -> None:
    named = {path.removesuffix(".py") for path, _ in modules(texts)}
    named |= {path.rsplit("/", 1)[0] for path in named}
    tests = [path for path in texts if path.startswith("tests/") and path.rsplit("/", 1)[1].startswith("test_")]
    assert "tests/house/test_house.py" in tests
    assert unmirrored(tests, named) == []
    fine = ["tests/infra/test_clock.py", "tests/infra/test_clock_leap.py", "tests/contracts/test_a.py"]
    assert unmirrored(fine, named) == []
    wrong = ["tests/infra/test_clocks.py", "tests/infra/store/test_clock.py", "tests/more/test_clock.py"]
    assert unmirrored(wrong, named) == wrong


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_are_linked_from_the_front_door(room: str) -> None:
    link = TOP / "siltlog" / room
    assert link.is_symlink(), f"siltlog/{room} must be a link; with git on Windows: git config core.symlinks true"
    assert link.readlink() == Path("..") / room


def test_links_between_documents_lead_somewhere(texts: dict[str, str]) -> None:
    documents = [(path, text) for path, text in texts.items() if path.endswith(".md")]
    assert [hit for path, text in documents for hit in broken_links(path, text)] == []


def test_every_requirement_is_pinned_with_its_hash(texts: dict[str, str]) -> None:
    project = tomllib.loads(texts["pyproject.toml"])
    requirements = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    requirements += [each for extra in project["project"]["optional-dependencies"].values() for each in extra]
    ours = re.compile(r"siltlog\b")
    assert unpinned([each for each in requirements if not ours.match(each)], texts["requirements/dev.txt"]) == []


@pytest.mark.parametrize(("lock", "extra"), [("server", "server"), ("pipelines", "spark"), ("build", "")])
def test_images_have_what_tests_ran_with(lock: str, extra: str, texts: dict[str, str]) -> None:
    project = tomllib.loads(texts["pyproject.toml"])
    wanted = project["build-system"]["requires"]
    if extra:
        extras = project["project"]["optional-dependencies"]
        wanted = [*project["project"]["dependencies"], *extras["server"], *extras[extra]]
    text = texts[f"requirements/{lock}.txt"]
    assert unpinned([each for each in wanted if not each.startswith("siltlog")], text) == []
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE))
    tested = dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", texts["requirements/dev.txt"], re.MULTILINE))
    assert {name: version for name, version in pins.items() if tested.get(name, version) != version} == {}


def test_what_breaks_the_rules_is_found() -> None:
    assert hits(REGISTRIES, "a", "x\nfrom files." + "pythonhosted" + ".org/p") == ["a:2: pythonhosted" + ".org"]
    for path in ("/" + "root/x", "see /" + "home/me", '"file:///' + 'work/x"', "=/" + "Users/me"):
        assert hits(MACHINE_PATH, "a", path), path
    for fine in ("s3://bucket/root/x", "{base}/" + "work/x", "{root}/topics", "a/" + "home/b"):
        assert not hits(MACHINE_PATH, "a", fine), fine
    assert unknown_settings("a", "`SILT_PORT` and SILT_PROT, SILT_*", {"SILT_PORT"}) == ["a:1: SILT_PROT"]
    assert broken_links("README.md", "[a](LICENSE) [b](https://x.y) [c](#d) [e](no/such.md#f)") == [
        "README.md: no/such.md"
    ]
    assert too_long("a.py", "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX) == ["a.py:1: f has 101 lines"]
    assert too_long("a.py", "x = 1\n" * (LINES_MAX + 1)) == [f"a.py: {LINES_MAX + 1} lines"]


@pytest.mark.parametrize(
    "source",
    [
        "os.environ['A']",
        "os.environ.get('A')",
        "os.getenv('A')",
        "'A' in os.environ",
        "from os import environ",
        "time.monotonic()",
        "from time import monotonic",
        "datetime.now(UTC)",
        "random.random()",
        "from random import choice",
    ],
)
def test_what_passes_a_seam_is_found(source: str) -> None:
    assert len(seams_passed("ingest/log/log.py", source)) == 1


@pytest.mark.parametrize("source", ["dict(os.environ)", "os.environ['A'] = b", "random.Random(7)", "clock.now_us()"])
def test_what_passes_no_seam_is_left_alone(source: str) -> None:
    assert seams_passed("ingest/log/log.py", source) == []


def test_a_lock_that_does_not_hold_is_found() -> None:
    lock = "click==8.1 \\\n    --hash=sha256:aa\nrich==14.0\n"
    assert unpinned(["click>=8.2", "rich>=14", "numpy>=2"], lock) == [
        "click>=8.2 (pinned: 8.1)",
        "numpy>=2 (pinned: None)",
        "rich==14.0 has no hash",
    ]
    assert unpinned([], "--index-url https://x/simple\n") != []
