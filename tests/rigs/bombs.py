"""Little that stands for much: bodies that inflate to more than any server should make of them."""

BLOCK_BYTES_MAX = 128 * 1024


def zstd_bomb(nbytes: int) -> bytes:
    """A frame of runs: each block of 128 KiB is four bytes (RFC 8878, section 3.1.1.2)."""
    run = (BLOCK_BYTES_MAX << 3 | 0b010).to_bytes(3, "little") + b"x"
    last = (1 << 3 | 0b011).to_bytes(3, "little") + b"x"
    return bytes.fromhex("28b52ffd0068") + run * (nbytes // BLOCK_BYTES_MAX) + last
