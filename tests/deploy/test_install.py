"""`install.sh` on a machine whose uv notes what it is asked for, on one without, and with wheels that are wrong."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
SCRIPT = TOP / "infra" / "deploy" / "install.sh"
UV = """#!/bin/sh
if [ "$1 $2" = "tool dir" ]; then echo "$HOME/tools"; exit; fi
echo "uv $*" >>"$HOME/asked"
mkdir -p "$HOME/tools"
cat >"$HOME/tools/silt" <<'END'
#!/bin/sh
[ "$1" != --version ] || { echo "silt, version 9.9.9"; exit; }
[ "$2" != --help ] || exit 0
echo "silt $*" >>"$HOME/asked"
[ "$1" != init ] || : >siltlog.toml
END
chmod +x "$HOME/tools/silt"
"""
INSTALL = "uv tool install --upgrade --python >=3.11"


@dataclass
class Machine:
    home: Path
    folder: Path
    """Where a server is to be begun."""
    path: str

    def sh(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(self.home), "PATH": self.path}
        return subprocess.run(
            ["sh", str(SCRIPT), *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )

    @property
    def asked(self) -> list[str]:
        path = self.home / "asked"
        return path.read_text("utf-8").splitlines() if path.exists() else []


def bare(tmp_path: Path) -> Machine:
    """A machine with what every system has, and neither uv nor Python."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "cat", "sed", "awk", "cut", "dirname", "basename", "sha256sum", "mkdir", "chmod"):
        found = shutil.which(name)
        assert found, name
        (programs / name).symlink_to(found)
    for name in ("home", "folder"):
        (tmp_path / name).mkdir()
    return Machine(tmp_path / "home", tmp_path / "folder", str(programs))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = bare(tmp_path)
    uv = Path(made.path) / "uv"
    uv.write_text(UV, "utf-8")
    uv.chmod(0o755)
    return made


def test_it_installs_the_server_and_begins_one_here(machine: Machine) -> None:
    done = machine.sh("--", "--yes", "--root", "s3://b/lake")
    assert done.returncode == 0, done.stderr
    assert machine.asked == [f"{INSTALL} siltlog[server]", "silt init --yes --root s3://b/lake"]
    assert "tools is not on PATH: uv tool update-shell puts it there" in done.stdout


def test_run_again_it_begins_nothing_anew(machine: Machine) -> None:
    machine.sh()
    (machine.folder / "siltlog.toml").write_text("port = 1\n", "utf-8")
    again = machine.sh()
    assert (again.returncode, machine.asked[-1]) == (0, f"{INSTALL} siltlog[server]")
    assert "siltlog.toml is here already, and stays" in again.stdout
    assert (machine.folder / "siltlog.toml").read_text("utf-8") == "port = 1\n"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--version", "1.2.3"), "siltlog[server]==1.2.3"),
        (("--extras", ""), "siltlog"),
        (("--extras", "server,sql"), "siltlog[server,sql]"),
    ],
)
def test_a_version_and_extras_may_be_chosen(machine: Machine, arguments: tuple[str, ...], wanted: str) -> None:
    assert machine.sh("--no-init", *arguments).returncode == 0
    assert machine.asked == [f"{INSTALL} {wanted}"]


def test_a_dry_run_says_everything_and_does_nothing(machine: Machine) -> None:
    done = machine.sh("--dry-run")
    assert (done.returncode, done.stdout) == (0, f"+ {INSTALL} siltlog[server]\n")
    assert [*machine.home.iterdir(), *machine.folder.iterdir()] == []


def url(path: Path) -> str:
    """uv takes a comma for the end of a requirement."""
    return path.as_uri().replace(",", "%2C")


def named(path: Path) -> str:
    """The line of a release's sums that says what a file is."""
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"


def beside(path: Path, sums: str | None) -> None:
    if sums is not None:
        (path.parent / "SHA256SUMS").write_text(sums, "utf-8")


def refused(machine: Machine, said: str, *arguments: str) -> None:
    done = machine.sh(*arguments)
    assert done.returncode == 1
    assert re.search(said, done.stderr), done.stderr
    assert machine.asked == []


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    folder = tmp_path / "100%, a #folder"
    folder.mkdir()
    path = folder / "siltlog-9.9.9-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


def test_a_wheel_is_installed_where_the_sums_beside_it_name_it(machine: Machine, wheel: Path) -> None:
    beside(wheel, named(wheel))
    assert machine.sh("--no-init", "--wheel", str(wheel)).returncode == 0
    assert machine.asked == [f"{INSTALL} siltlog[server] @ {url(wheel)}"]


@pytest.fixture
def codec(wheel: Path) -> Path:
    path = wheel.parent / "siltlog_native-9.9.9-cp311-abi3-linux_x86_64.whl"
    path.write_bytes(b"a codec")
    return path


def test_the_codec_of_a_release_comes_with_it(machine: Machine, codec: Path) -> None:
    beside(codec, named(codec))
    assert machine.sh("--codec", str(codec), "--", "--yes").returncode == 0
    assert machine.asked == [f"{INSTALL} --with siltlog-native @ {url(codec)} siltlog[server]", "silt init --yes"]


@pytest.mark.parametrize(
    ("sums", "arguments", "said"),
    [
        (None, (), r"put the release's SHA256SUMS beside it\n"),
        ("0" * 64 + "  other.whl\n", (), "SHA256SUMS does not name siltlog_native-9"),
        ("0" * 64 + "  siltlog_native-9.9.9-cp311-abi3-linux_x86_64.whl\n", (), "is not what was released"),
        (None, ("--extras", ""), "--codec is of a server"),
        (None, ("--sha256", "0" * 64), "--sha256 says what a --wheel is, and there is none"),
    ],
)
def test_a_codec_that_may_be_another_is_not(
    machine: Machine, codec: Path, sums: str | None, arguments: tuple[str, ...], said: str
) -> None:
    beside(codec, sums)
    refused(machine, said, "--codec", str(codec), *arguments)


@pytest.mark.parametrize(
    ("sums", "arguments", "said"),
    [
        (None, (), "nothing says what .* must be: put the release's SHA256SUMS beside it, or say --sha256"),
        ("0" * 64 + "  other.whl\n", (), "SHA256SUMS does not name siltlog-9"),
        ("0" * 64 + "  siltlog-9.9.9-py3-none-any.whl\n", (), "is not what was released: .* Nothing was installed"),
        (None, ("--sha256", "0" * 64), "is not what was released"),
        (None, ("--sha256", "0" * 64, "--version", "1.0"), "--wheel is of one version: leave out --version"),
    ],
)
def test_a_wheel_that_may_be_another_is_not(
    machine: Machine, wheel: Path, sums: str | None, arguments: tuple[str, ...], said: str
) -> None:
    beside(wheel, sums)
    refused(machine, said, "--wheel", str(wheel), *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--verison", "1"), "--verison is no option"), (("--version",), "--version wants a value")],
)
def test_what_is_misspelt_is_told(machine: Machine, arguments: tuple[str, ...], said: str) -> None:
    done = machine.sh(*arguments)
    assert (done.returncode, machine.asked) == (1, [])
    assert said in done.stderr


def test_a_machine_with_neither_uv_nor_python_is_told_what_to_install(tmp_path: Path) -> None:
    done = bare(tmp_path).sh()
    assert done.returncode == 1
    assert "install uv, or python3-venv, with your system's packages" in done.stderr


def test_a_missing_uv_is_installed_by_python_from_what_its_hashes_name(tmp_path: Path) -> None:
    """This Python makes a folder with a pip that notes what it is to install, and puts a uv there."""
    machine = bare(tmp_path)
    python = Path(machine.path) / "python3"
    python.write_text(
        '#!/bin/sh\ncase "$1 $2" in\n  "-c "*) exit 0 ;;\n  "-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;\n'
        '  "-m pip") echo "pip $*" >>"$HOME/asked"; cp "$HOME/uv" "$(dirname "$0")/uv" ;;\nesac\n',
        "utf-8",
    )
    python.chmod(0o755)
    (Path(machine.path) / "cp").symlink_to(shutil.which("cp") or "")
    (machine.home / "uv").write_text(UV, "utf-8")
    (machine.home / "uv").chmod(0o755)
    assert machine.sh("--no-init").returncode == 0
    pip, uv = machine.asked
    assert "--require-hashes" in pip
    assert uv == f"{INSTALL} siltlog[server]"
    own = machine.home / ".local/share/siltlog/uv/requirements.txt"
    assert own.read_text("utf-8") == (TOP / "requirements/uv.txt").read_text("utf-8"), "it is the one that make uses"
    assert machine.sh("--no-init").returncode == 0
    assert [line for line in machine.asked if line.startswith("pip")] == [pip], "it is there"


def test_the_uv_it_installs_is_the_one_it_is_tested_with() -> None:
    [version] = re.findall(r"^uv_version=(.*)$", SCRIPT.read_text("utf-8"), re.MULTILINE)
    assert f"uv=={version}\n" in (TOP / "tests/deploy/tools").read_text("utf-8")
    assert os.access(SCRIPT, os.X_OK)


UV_OF_WHEELS = """#!{python}
import os, subprocess, sys, venv, zipfile
home = os.environ["HOME"]
with open(home + "/asked", "a") as asked:
    asked.write("uv " + " ".join(sys.argv[1:]) + "\\n")
if sys.argv[1:3] == ["tool", "dir"]:
    print(home + "/tools")
    raise SystemExit
assert sys.argv[1:3] == ["tool", "install"], sys.argv
what, _, place = sys.argv[-1].partition(" @ file://")
venv.create(home + "/own", symlinks=True)
[folder] = [f"{{home}}/own/lib/{{name}}/site-packages" for name in os.listdir(home + "/own/lib")]
zipfile.ZipFile(place).extractall(folder)
# What it depends on is this Python's; Siltlog itself is the wheel's alone.
with open(folder + "/dependencies.pth", "w") as pth:
    pth.write({dependencies!r} + "\\n")
os.makedirs(home + "/tools", exist_ok=True)
with open(home + "/tools/silt", "w") as silt:
    silt.write(f"#!{{home}}/own/bin/python\\nfrom siltlog.cli.__main__ import start\\nraise SystemExit(start())\\n")
os.chmod(home + "/tools/silt", 0o755)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree, with the sums of a release beside it."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=TOP, check=True, capture_output=True, timeout=120)
    [wheel] = folder.glob("siltlog-*.whl")
    beside(wheel, named(wheel))
    return wheel


@pytest.mark.slow
def test_a_wheel_of_this_tree_begins_a_server_that_serves(tmp_path: Path, built: Path) -> None:
    """All is real but for uv, which installs no dependencies."""
    machine = bare(tmp_path)
    uv = Path(machine.path) / "uv"
    dependencies = sysconfig.get_paths()["purelib"]
    uv.write_text(UV_OF_WHEELS.format(python=sys.executable, dependencies=dependencies), "utf-8")
    uv.chmod(0o755)
    data_dir = machine.folder / "data"
    done = machine.sh("--wheel", str(built), "--", "--yes", "--data-dir", str(data_dir))
    assert done.returncode == 0, done.stdout + done.stderr
    assert machine.asked[0] == f"{INSTALL} siltlog[server] @ file://{built}"
    assert f"silt, version {metadata.version('siltlog')}" in done.stdout
    silt, begun = machine.home / "tools" / "silt", machine.folder / "siltlog.toml"
    assert tomllib.loads(begun.read_text("utf-8"))["data_dir"] == str(data_dir)
    where = [machine.home / "own/bin/python", "-c", "import siltlog; print(siltlog.__file__)"]
    environment = {"HOME": str(machine.home), "PATH": machine.path}
    found = subprocess.run(where, cwd=machine.folder, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(machine.home))
    serving = subprocess.Popen(
        [silt, "serve", "--port", "0"],
        cwd=machine.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert serving.stdout is not None
        assert next(iter(serving.stdout.readline, ""), "").startswith("listening on http://127.0.0.1:")
    finally:
        serving.terminate()
        assert serving.wait(60) == 0
        if serving.stdout is not None:
            serving.stdout.close()
    before = begun.read_bytes()
    again = machine.sh("--wheel", str(built), "--", "--yes")
    assert again.returncode == 0 and "siltlog.toml is here already, and stays" in again.stdout
    assert begun.read_bytes() == before
