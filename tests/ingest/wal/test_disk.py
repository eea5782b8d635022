"""What the log writes is in its file, on file systems that take writes past the page cache and on those that do not."""

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from siltlog.ingest.wal.disk import BLOCK_BYTES, MIB, Disk

FILE_BYTES = 12 * MIB
LARGE_BYTES = 4 * MIB + MIB // 2
"""More than is gathered for one write."""
SIZES = (0, 1, 7, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 60_000)

Pwrite = Callable[[int, memoryview, int], int]


def refuses(_: Pwrite) -> Pwrite:
    def pwrite(fd: int, data: memoryview, position: int) -> int:
        raise OSError(errno.EINVAL, "not here")

    return pwrite


def writes_less(real: Pwrite) -> Pwrite:
    """Whole blocks, but not always all."""
    lengths = random.Random(2)

    def pwrite(fd: int, data: memoryview, position: int) -> int:
        return real(fd, data[: BLOCK_BYTES * lengths.randint(1, -(-len(data) // BLOCK_BYTES))], position)

    return pwrite


def direct_writes(monkeypatch: pytest.MonkeyPatch, disk: Disk, how: Callable[[Pwrite], Pwrite]) -> None:
    """Lets writes past the page cache end as `how` says; others are as they were."""
    real = os.pwrite
    other = how(real)

    def pwrite(fd: int, data: memoryview, position: int) -> int:
        past_the_cache = fd in [file.fd for file in disk._direct.values()]
        return (other if past_the_cache else real)(fd, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)


def write_at_random(disk: Disk, fd: int, path: Path, numbers: random.Random) -> bytes:
    """Writes like a log, at its end; the next write may begin in the middle of a block. Gives what must be there."""
    wanted = bytearray(FILE_BYTES)
    position = BLOCK_BYTES
    while position < FILE_BYTES - LARGE_BYTES - 5 * max(SIZES):
        buffers = [b"+", *(numbers.randbytes(numbers.choice(SIZES)) for _ in range(numbers.randint(0, 4)))]
        if numbers.random() < 0.02:
            buffers.append(numbers.randbytes(LARGE_BYTES))
        written = b"".join(buffers)
        disk.write(fd, buffers, position)
        disk.sync(fd)
        assert disk.read(fd, position, len(written)) == written
        wanted[position : position + len(written)] = written
        position += len(written)
        if numbers.random() < 0.2:
            position += -position % numbers.choice((8, BLOCK_BYTES))
        if numbers.random() < 0.1:
            disk.close(fd)
            fd = disk.open(path)
    disk.close(fd)
    return bytes(wanted)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", [None, writes_less, refuses])
@pytest.mark.parametrize("from_the_start", [True, False])
def test_what_is_written_is_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: Callable[[Pwrite], Pwrite] | None,
    from_the_start: bool,
    seed: int,
) -> None:
    disk, path = Disk(), tmp_path / "segment"
    if how is not None and from_the_start:
        direct_writes(monkeypatch, disk, how)
    fd = disk.create(path, FILE_BYTES)
    assert path.read_bytes() == bytes(FILE_BYTES)
    if how is not None and not from_the_start:
        # As where only the length of a write, or where its bytes lie, is taken amiss.
        direct_writes(monkeypatch, disk, how)
    wanted = write_at_random(disk, fd, path, random.Random(seed))
    assert path.read_bytes() == wanted
    assert not disk._direct


@pytest.mark.rule("W5")
def test_writes_go_past_the_page_cache_where_they_can(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "segment"
    fd = disk.create(path, FILE_BYTES)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system takes no writes past the page cache")
    numbers, written, position = random.Random(1), b"", 0
    for size in (1, BLOCK_BYTES - 1, 5, 3 * BLOCK_BYTES + 7, 60_000):
        part = numbers.randbytes(size)
        disk.write(fd, [part], position)
        written += part
        position += size
    assert fd in disk._direct, "the file system took all of them"
    assert disk.read(fd, 0, len(written)) == written
    disk.close(fd)
