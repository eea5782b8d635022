"""Disks that are full: file systems in memory."""

import os
import subprocess
from pathlib import Path

import pytest


class SmallDisk:
    """A file system in memory, of a size that can change."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        path.mkdir()
        self._mount("-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path))

    def change(self, options: str) -> None:
        self._mount("-o", f"remount,{options}", str(self.path))

    def leave(self, free_bytes: int) -> None:
        """Makes it so small that no more than that is free, in whole blocks."""
        status = os.statvfs(self.path)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        self.change(f"size={(used + free_bytes) // status.f_frsize * status.f_frsize}")

    def _mount(self, *arguments: str) -> None:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")

    def remove(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=False, capture_output=True)
