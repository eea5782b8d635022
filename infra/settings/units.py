"""Amounts as people write them: `7d`, `1h30m`, `4GB`, `16MiB`; whole numbers without a unit stay what they are."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

MILLIS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_PREFIXES = "kmgtp"
BYTES = {
    "b": 1,
    **{f"{prefix}{b}": 1000**power for power, prefix in enumerate(_PREFIXES, 1) for b in ("", "b")},
    **{f"{prefix}i{b}": 1024**power for power, prefix in enumerate(_PREFIXES, 1) for b in ("", "b")},
}
"""Units in small letters, as Kubernetes has them: 4GB is 4,000,000,000 and 4GiB 4,294,967,296."""
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_PART = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) ?([A-Za-z]+)")
_DURATION = re.compile(rf"(?:{_PART.pattern} ?)+", re.ASCII)
_SIZE = re.compile(_PART.pattern, re.ASCII)


def duration_ms(text: str) -> int:
    """Milliseconds of a number of them, or of `500ms`, `90s`, `30m`, `1h30m`, `7d`, `2w`. Raises ValueError."""
    if _WHOLE.fullmatch(text):
        return int(text)
    if _DURATION.fullmatch(text):
        parts = [_product(number, unit, MILLIS) for number, unit in _PART.findall(text)]
        total = sum(part for part in parts if part is not None)
        if None not in parts and total == int(total):
            return int(total)
    raise ValueError(
        f"{text[:60]!r} is no length of time: write milliseconds, or a number with ms, s, m, h, d or w, such as 7d"
    )


def size_bytes(text: str) -> int:
    """Bytes of a number of them, or of `64KiB`, `4GB`, `1.5TiB`, in letters of either size. Raises ValueError."""
    if _WHOLE.fullmatch(text):
        return int(text)
    found = _SIZE.fullmatch(text)
    size = _product(found[1], found[2].lower(), BYTES) if found else None
    if size is None or size != int(size):
        raise ValueError(
            f"{text[:60]!r} is no number of bytes: write bytes, or a number with kB, MB, GB, TB (powers of 1000) or "
            "KiB, MiB, GiB, TiB (powers of 1024), such as 4GiB"
        )
    return int(size)


def unit_kind(name: str) -> Literal["duration", "size"] | None:
    """Tells the unit that the name of a setting says: `flush.ms`, `wal_bytes_max`."""
    words = re.split(r"[._]", name)
    if words[-1] == "ms":
        return "duration"
    return "size" if "bytes" in words else None


def in_unit_of(name: str, text: str) -> int | None:
    """The number that `text` stands for in the unit of the setting; None where it has none. Raises ValueError."""
    kind = unit_kind(name)
    if kind is None:
        return None
    return duration_ms(text) if kind == "duration" else size_bytes(text)


def _product(number: str, unit: str, units: Mapping[str, int]) -> Decimal | None:
    return Decimal(number) * units[unit] if unit in units else None
