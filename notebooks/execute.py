"""Runs a notebook from top to bottom and stores in it what it printed and drew, without what is only true here.

    python notebooks/execute.py notebooks/tour.ipynb

A cell that fails, or an output that names a place of this machine, ends it with a sentence, and nothing is stored.
"""

import base64
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode

CELL_TIMEOUT_S = 600
STOP_TIMEOUT_S = 60
"""How long the kernel has to stop what the notebook started, when it is interrupted."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_TERMINAL_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):\d+")


def run(notebook: NotebookNode, folder: Path) -> None:
    """Executes every cell with this Python, in `folder`. Raises CellExecutionError."""
    kernel = AsyncKernelManager(kernel_name="python3")
    kernel.shutdown_wait_time = STOP_TIMEOUT_S
    client = NotebookClient(
        notebook,
        km=kernel,
        timeout=CELL_TIMEOUT_S,
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],  # else it says at each start that loopback is not encrypted
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(cleanup_kc=True)


def clean(notebook: NotebookNode) -> None:
    """Leaves of the metadata what a reader needs: the language, and the tags of cells."""
    notebook.metadata.clear()
    notebook.metadata.update(METADATA)
    for cell in notebook.cells:
        for name in set(cell.metadata) - {"tags"}:
            del cell.metadata[name]
        for output in cell.get("outputs", ()):
            output.get("metadata", {}).clear()


def leaks(notebook: NotebookNode, folder: Path) -> list[str]:
    """Finds what outputs say that is only true of this machine, or that nobody meant to print: one line for each."""
    places = {
        str(folder),
        str(Path(__file__).resolve().parents[1]),
        str(Path.home()),
        sys.prefix,
        tempfile.gettempdir(),
    }
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            texts = [output.get("text", ""), *(text for kind, text in output.get("data", {}).items() if "text" in kind)]
            said = "".join(texts)
            if output.get("name") == "stderr":
                found.append(f"cell {cell.id!r} wrote to standard error: {said.strip()}")
            found += [f"cell {cell.id!r} names {place}" for place in sorted(places) if f"{place}{os.sep}" in said]
            found += [f"cell {cell.id!r} names {address}" for address in _ADDRESS.findall(said)]
    return found


def pictures(notebook: NotebookNode) -> list[bytes]:
    """The PNGs of the outputs, in order."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [base64.b64decode(output.data["image/png"]) for output in outputs if "image/png" in output.get("data", {})]


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    path = Path(arguments[0])
    folder = path.resolve().parent
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]
    print(f"Running {path} (a minute or two)", flush=True)
    try:
        run(notebook, folder)
    except (CellExecutionError, DeadKernelError) as error:
        print(_TERMINAL_STYLE.sub("", str(error)), file=sys.stderr)
        return 1
    clean(notebook)
    found = leaks(notebook, folder)
    if found:
        print("\n".join([f"{path} is left as it was:", *found]), file=sys.stderr)
        return 1
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
    print(f"Stored {len(pictures(notebook))} pictures, {path.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
