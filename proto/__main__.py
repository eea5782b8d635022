"""Makes the code of the protocol anew: `make proto`.

Only the messages have code. The server names its methods itself, and a client makes stubs of the file in whatever
language it is in.
"""

import importlib.resources
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).parents[1]
FILE = "silt/v1/silt.proto"
MADE = TOP / "infra" / "grpc" / "made"


def make(folder: Path) -> list[Path]:
    """Writes the code into `folder`; its paths."""
    given = importlib.resources.files("grpc_tools") / "_proto"
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(
            [
                *(sys.executable, "-m", "grpc_tools.protoc", f"-I{TOP / 'proto'}", f"-I{given}"),
                *(f"--python_out={scratch}", f"--pyi_out={scratch}", FILE),
            ],
            check=True,
        )
        return [Path(shutil.copy(path, folder)) for path in sorted(Path(scratch, FILE).parent.iterdir())]


if __name__ == "__main__":
    for made in make(MADE):
        print(made.relative_to(TOP))
