"""The wheel as a user gets it: what is in it, what it asks for, and that a repository of their own cannot shadow it."""

import re
import runpy
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email import message_from_string
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.archives import unpack

pytestmark = pytest.mark.slow

TOP = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)]*)\)")
ROOMS = ("infra", "ingest", "consumers", "pipelines")


def run(*command: str | Path, cwd: Path) -> str:
    """Stdout of a command that must succeed, with nothing of this process's environment that steers imports."""
    ran = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cwd)},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def build(target: str, source: Path, folder: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder, cwd=source)
    [built] = folder.glob("siltlog-*")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", TOP, tmp_path_factory.mktemp("wheel"))


def files_of(wheel: Path) -> list[PurePosixPath]:
    with zipfile.ZipFile(wheel) as archive:
        return [PurePosixPath(name) for name in archive.namelist()]


@pytest.fixture(scope="module")
def files(wheel: Path) -> list[PurePosixPath]:
    return files_of(wheel)


@pytest.fixture(scope="module")
def wanted(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_string(archive.read(name).decode("utf-8"))
    return [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]


def base(wanted: list[Requirement]) -> set[str]:
    """Distributions that an installation without extras gets."""
    return {canonicalize_name(each.name) for each in wanted if not each.marker or each.marker.evaluate({"extra": ""})}


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the wheel installed; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    interpreter = folder / "bin" / "python"
    install = ("install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
    run(sys.executable, "-m", "pip", "--python", interpreter, *install, wheel, cwd=folder)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    here = sysconfig.get_paths()
    # A path that a .pth file adds comes last, and the .pth files in it (our editable installation's) are not read.
    (Path(paths["purelib"]) / "dependencies.pth").write_text(f"{here['purelib']}\n{here['platlib']}\n", "utf-8")
    return interpreter


@pytest.fixture
def data_team(tmp_path: Path) -> Path:
    """A repository with top-level packages that have the names of our rooms and must not be imported."""
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text(f"raise RuntimeError('{room} is not ours')\n", "utf-8")
    return tmp_path


def test_the_wheel_holds_the_rooms_under_one_name(files: list[PurePosixPath]) -> None:
    assert {path.parts[0] for path in files if not path.parts[0].endswith(".dist-info")} == {"siltlog"}
    held = {str(path) for path in files}
    rooms = [(TOP / room, f"siltlog/{room}") for room in ROOMS]
    for folder, name in [*rooms, (TOP / "siltlog", "siltlog")]:
        modules = {f"{name}/{path.relative_to(folder)}" for path in folder.rglob("*.py")}
        assert modules - held == set()


def test_the_wheel_holds_what_is_not_python(files: list[PurePosixPath]) -> None:
    held = {str(path) for path in files}
    data = {
        f"siltlog/{path.relative_to(TOP)}"
        for room in ROOMS
        for path in (TOP / room).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert any(name.endswith(".lua") for name in data)
    assert {"siltlog/py.typed", *data} - held == set()
    assert any(path.name == "LICENSE" for path in files)
    assert [path for path in files if {"__pycache__", "tests"} & set(path.parts)] == []


def test_a_wheel_built_from_the_source_distribution_is_the_same(files: list[PurePosixPath], tmp_path: Path) -> None:
    with tarfile.open(build("sdist", TOP, tmp_path / "sdist")) as archive:
        unpack(archive, tmp_path)
    [source] = tmp_path.glob("siltlog-*")
    assert set(files_of(build("wheel", source, tmp_path / "wheel"))) == set(files)


def test_the_readme_of_a_package_index_links_to_nothing_that_is_not_there(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_string(archive.read(name).decode("utf-8"))
    assert metadata["Description-Content-Type"] == "text/markdown"
    links = LINK.findall(metadata.get_payload())
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_links_lead_below_the_home_once_there_is_one() -> None:
    names = runpy.run_path(str(TOP / "hatch_build.py"))
    text = "[a](docs/a.md#b), [docs/](docs/), [c](https://c.example), [d](#d)"
    whole = "[a](https://h/main/docs/a.md#b), [docs/](https://h/main/docs/), [c](https://c.example), [d](#d)"
    assert names["self_sufficient"](text, "https://h/main") == whole
    assert names["self_sufficient"](text, "") == "`docs/a.md#b`, `docs/`, [c](https://c.example), [d](#d)"


def test_the_base_install_asks_for_no_server_and_no_spark(wanted: list[Requirement]) -> None:
    assert base(wanted) == {"click", "msgspec", "numpy", "pyarrow", "rich", "httptools", "xxhash"}


def test_what_is_installed_is_ours_beside_folders_of_the_same_names(python: Path, data_team: Path) -> None:
    program = """
import importlib, pathlib, pkgutil, siltlog
found = [each.name for each in pkgutil.walk_packages(siltlog.__path__, "siltlog.")]
for name in found:
    if not name.endswith("__main__"):
        module = importlib.import_module(name)
        assert "site-packages" in module.__file__, module.__file__
for name in siltlog.__all__:
    getattr(siltlog, name)
print(*found)
"""
    found = run(python, "-c", program, cwd=data_team).split()
    assert {f"siltlog.{room}" for room in ROOMS} <= set(found)
    with pytest.raises(AssertionError, match="infra is not ours"):
        run(python, "-c", "import infra", cwd=data_team)


def test_the_command_is_installed(python: Path, data_team: Path) -> None:
    version = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    for command in ("silt", "siltlog"):
        assert version in run(python.with_name(command), "--version", cwd=data_team)
    assert "serve" in run(python, "-m", "siltlog.cli", "--help", cwd=data_team)


def test_the_pytest_fixture_comes_with_the_package(python: Path, data_team: Path) -> None:
    fixtures = run(python, "-m", "pytest", "--fixtures", "--quiet", "-p", "no:cacheprovider", cwd=data_team)
    assert {"siltlog_memory", "siltlog_server"} <= set(fixtures.split())


def test_clients_work_where_only_the_base_is_installed(
    python: Path, data_team: Path, wanted: list[Requirement]
) -> None:
    extra = {canonicalize_name(each.name) for each in wanted} - base(wanted) - {"siltlog"}
    absent = {
        top
        for top, providers in packages_distributions().items()
        if extra & {canonicalize_name(provider) for provider in providers}
    }
    assert {"pyspark", "redis", "deltalake", "pydantic", "starlette"} <= absent
    program = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {sorted(absent)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import siltlog
from siltlog import Consumer, Producer
from siltlog.cli.main import main
from siltlog.testing import MemoryServer
server = MemoryServer(auto_create_partitions=1)
with server.producer() as producer:
    producer.send("flights", b"1")
with server.consumer(group="g", topics="flights", stop_at="latest") as consumer:
    assert len(list(consumer)) == 1
for arguments in (["--help"], ["publish", "--help"], ["consume", "--help"], ["topic", "list", "--help"]):
    sys.argv = ["silt", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (arguments, end.code)
"""
    assert "consume" in run(python, "-c", program, cwd=data_team)
