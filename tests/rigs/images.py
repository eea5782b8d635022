"""Builds images without a daemon or a registry, and runs them as a container runtime does: a mount and a process
namespace of their own, a root that cannot be written, no capability, the image's user, environment and command."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

TOP = Path(__file__).parents[2]
DOCKERFILE = TOP / "infra" / "deploy" / "Dockerfile"
NATIVE = TOP / "native"
LOCKS = ("build", "server", "pipelines")
AUTHORITIES = Path("/etc/ssl/certs")
AUTHORITIES_OF_JAVA = AUTHORITIES / "java" / "cacerts"
PACKAGES = ("python3", "python3-venv", "ca-certificates")
LINKER = ("gcc", "libc6-dev")
CONFIG_OF_CARGO = """[source.crates-io]
replace-with = "vendored"
[source.vendored]
directory = "/.cargo/vendor"
"""
LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")


def checked(*command: str | Path, timeout: float = 1500, **more: Any) -> str:
    """Its standard output; it must succeed."""
    ran = subprocess.run(
        [*map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        **more,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout[-3000:]}\n{ran.stderr[-6000:]}"
    return ran.stdout


def kept(cache: Path, name: str, make: Callable[[Path], None]) -> Path:
    """What `make` once made at a path that it is given: there whole, or not at all."""
    path = cache / name
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        pending = cache / f".{os.getpid()}-{name}"
        make(pending)
        pending.rename(path)
    return path


class Builder:
    """The images of one store of buildah's own."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        folder = cache / "containers"
        self._buildah = ("buildah", "--root", folder / "images", "--runroot", folder / "run")
        self._environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}

    def __call__(self, *arguments: str | Path, timeout: float = 1500) -> str:
        return checked(*self._buildah, *arguments, timeout=timeout, env=self._environment).strip()

    def clear(self) -> None:
        self("rm", "--all")
        self("rmi", "--all", "--force")

    def base(self) -> str:
        """A Debian with Python and little else."""
        container = self._debian(PACKAGES)
        self("commit", "--quiet", "--rm", container, "base")
        return "localhost/base"

    def rust(self, sysroot: Path) -> str:
        """A Debian with a linker and the toolchain of this machine that rustup has in `sysroot`; it has no Python."""
        container = self._debian(LINKER)
        self("copy", "--quiet", container, sysroot / "bin" / "cargo", sysroot / "bin" / "rustc", "/usr/local/bin/")
        self("copy", "--quiet", container, sysroot / "lib", "/usr/local/lib")
        self("commit", "--quiet", "--rm", container, "rust")
        return "localhost/rust"

    def _debian(self, packages: Sequence[str]) -> str:
        options = [f"--dpkgopt=path-exclude={each}" for each in LEFT_OUT]

        def make(path: Path) -> None:
            included = f"--include={','.join(packages)}"
            checked("mmdebstrap", "--variant=minbase", "--format=tar", *options, included, "bookworm", path)

        archive = kept(self._cache, f"bookworm-{digest(*packages, *LEFT_OUT)}.tar", make)
        container = self("from", "scratch")
        self("add", "--quiet", container, archive, "/")
        return container

    def crates(self) -> Path:
        """A folder that is cargo's configuration in a build without a network, with the crates that the lock names."""

        def make(path: Path) -> None:
            with TemporaryDirectory() as folder:
                source = shutil.copytree(NATIVE, Path(folder) / "native")
                checked("sh", source / "lock.sh")
                checked("cargo", "vendor", "--quiet", "--locked", path / "vendor", cwd=source)
            (path / "config.toml").write_text(CONFIG_OF_CARGO, "utf-8")

        return kept(self._cache, f"crates-{digest((NATIVE / 'crates.lock').read_text('utf-8'))}", make)

    def wheels(self, base: str) -> Path:
        """A folder with the files that the locks name, for the Python of `base`."""
        texts = [(TOP / "requirements" / f"{lock}.txt").read_text("utf-8") for lock in LOCKS]

        def make(path: Path) -> None:
            path.mkdir()
            container = self("from", "--pull-never", base)
            pip = "/b/bin/pip --disable-pip-version-check --quiet"
            download = (
                f"{pip} download --no-deps --no-build-isolation --require-hashes --find-links /wheels --dest /wheels"
            )
            lines = [
                "set -e; python3 -m venv /b",
                f"{pip} install --require-hashes -r /locks/build.txt",
                *(f"{download} -r /locks/{lock}.txt" for lock in LOCKS),
            ]
            self(
                *(
                    "run",
                    "--volume",
                    f"{AUTHORITIES}:{AUTHORITIES}:ro",
                    "--volume",
                    f"{TOP / 'requirements'}:/locks:ro",
                ),
                *("--volume", f"{path}:/wheels", "--env", f"PIP_CERT={AUTHORITIES / 'ca-certificates.crt'}"),
                *(container, "--", "sh", "-c", "; ".join(lines)),
            )
            self("rm", container)

        return kept(self._cache, f"wheels-{digest(*texts)}", make)

    def build(self, target: str, base: str, wheels: Path, *more: str, tag: str = "") -> "Image":
        """The image of a target; `more` are options of the build."""
        # Whom this machine trusts: what is downloaded may come by way of a mirror.
        trusted = f"-Djavax.net.ssl.trustStore=/authorities/{AUTHORITIES_OF_JAVA.name}"
        self(
            *("bud", "--quiet", "--layers", "--format", "docker", "--target", target, "--tag", tag or target),
            *("--build-arg", f"BASE={base}", "--build-arg", "PIP_NO_INDEX=1", "--build-arg", "PIP_FIND_LINKS=/wheels"),
            *("--build-arg", f"JAVA_TOOL_OPTIONS={trusted}", "--volume", f"{wheels}:/wheels:ro"),
            *("--volume", f"{AUTHORITIES_OF_JAVA.parent}:/authorities:ro", *more, "--file", DOCKERFILE, TOP),
        )
        name = f"localhost/{tag or target}"
        container = self("from", "--pull-never", name)
        root = Path(self("mount", container))
        inspected = json.loads(self("inspect", "--type", "image", name))
        return Image(root, inspected["Docker"]["config"])


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Image:
    root: Path
    config: Mapping[str, Any]

    @property
    def command(self) -> list[str]:
        return [*self.config["Entrypoint"], *(self.config["Cmd"] or ())]

    def unpacked_bytes(self) -> int:
        return sum(path.lstat().st_blocks * 512 for path in self.root.rglob("*"))

    def packed_bytes(self) -> int:
        """Counts its bytes as a registry has them, but for its layers."""
        packed = subprocess.run(
            f"tar -C '{self.root}' -c . | gzip -6 | wc -c", shell=True, capture_output=True, check=True, text=True
        )
        return int(packed.stdout)


class Container:
    """One process of an image, number 1 of its own namespace, with `volume` at /data; `mounts` are read-only."""

    def __init__(
        self,
        image: Image,
        volume: Path,
        folder: Path,
        *,
        arguments: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
        mounts: Mapping[Path, str] | None = None,
        offline: bool = False,
    ) -> None:
        self._image = image
        self._root = folder / "root"
        self._root.mkdir(parents=True, exist_ok=True)
        self.log = folder / "log"
        given = {name: value for name, _, value in (each.partition("=") for each in image.config["Env"])}
        self._environment = {**given, **(environment or {})}
        command = image.command if arguments is None else [*image.config["Entrypoint"], *arguments]
        root = self._root
        script = [
            "set -e",
            f"mount --bind '{image.root}' '{root}'",
            f"mkdir -p '{root}/data'",
            f"mount --bind '{volume}' '{root}/data'",
            *(
                f"touch '{root}{to}'; mount --bind -o ro '{source}' '{root}{to}'"
                for source, to in (mounts or {}).items()
            ),
            # A runtime brings it: without it `localhost` is nobody's name.
            f"echo '127.0.0.1 localhost' > '{folder}/hosts'",
            f"touch '{root}/etc/hosts'; mount --bind -o ro '{folder}/hosts' '{root}/etc/hosts'",
            f"mount -o remount,bind,ro '{root}'",
            f"mount -t proc proc '{root}/proc'",
            f"mount -t tmpfs -o mode=1777 tmpfs '{root}/tmp'",
            f"mount --rbind /dev '{root}/dev'",
            *(["ip link set lo up"] if offline else []),
            'exec "$@"',
        ]
        spaces = ["--mount", "--pid", "--ipc", *(["--net"] if offline else [])]
        self._output = self.log.open("ab")
        self._unshare = subprocess.Popen(
            ["unshare", *spaces, "--fork", "--kill-child", "sh", "-c", "\n".join(script), "sh", *self._inside(command)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
        )

    def _inside(self, command: Sequence[str]) -> list[str]:
        """A command line that has in the image what a runtime gives it."""
        user, _, group = self._image.config["User"].partition(":")
        as_user = ["setpriv", "--reuid", user, "--regid", group, "--clear-groups", "--no-new-privs"]
        rights = ["--inh-caps=-all", "--bounding-set=-all"]
        variables = [f"{name}={value}" for name, value in self._environment.items()]
        chroot = shutil.which("chroot", path="/usr/sbin:/usr/bin") or "chroot"
        return [
            chroot,
            str(self._root),
            "/usr/bin/setpriv",
            *as_user[1:],
            *rights,
            "/usr/bin/env",
            "-i",
            *variables,
            *command,
        ]

    @property
    def pid(self) -> int:
        """The process has number 1 inside."""
        path = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        [child] = path.read_text().split()
        return int(child)

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def execute(self, command: Sequence[str], *, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
        """Runs a command beside the process, as the image's user."""
        inside = self._inside(command)
        entered = ["nsenter", "--target", str(self.pid), "--mount", "--pid", *inside]
        return subprocess.run(entered, capture_output=True, text=True, check=False, timeout=timeout)

    def wait_for(self, text: str, times: int = 1, *, seconds: float = 90) -> None:
        ends = time.monotonic() + seconds
        while self.said().count(text) < times:
            assert self._unshare.poll() is None and time.monotonic() < ends, self.said()
            time.sleep(0.1)

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 90) -> int:
        """Its exit status, once it has ended; of a signal, that and 128 more, as a shell says it."""
        status = self._unshare.wait(seconds)
        self._output.close()
        return status

    def kill(self) -> None:
        if self._unshare.poll() is None:
            ender = threading.Timer(10, self._unshare.kill)
            ender.start()
            self.send(signal.SIGKILL)
            self._unshare.wait(30)
            ender.cancel()
        self._output.close()
