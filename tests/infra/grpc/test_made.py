"""What proto/ makes is what is committed."""

import runpy
from pathlib import Path

from siltlog.infra.grpc.made import silt_pb2

TOP = Path(__file__).parents[3]


def test_the_code_is_that_of_the_file(tmp_path: Path) -> None:
    make = runpy.run_path(str(TOP / "proto" / "__main__.py"))["make"]
    made = make(tmp_path)
    assert {path.name for path in made} == {"silt_pb2.py", "silt_pb2.pyi"}
    committed = Path(silt_pb2.__file__).parent
    # `make proto` brings it up to date.
    assert {path.name: path.read_text() for path in made} == {
        path.name: (committed / path.name).read_text() for path in made
    }
