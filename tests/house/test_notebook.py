"""The tour: what is stored of it, that it runs from top to bottom, and that it leaves nothing behind."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output
from spark_python import fast_workers

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
TOUR = NOTEBOOKS / "tour.ipynb"
EXECUTE = NOTEBOOKS / "execute.py"
PICTURES = ("progress", "latency", "freshness", "lag", "files", "answer", "stream")
SIZE_BYTES_MAX = 1_000_000
FLIGHTS = 12_000


@pytest.fixture(scope="module")
def execute() -> ModuleType:
    spec = importlib.util.spec_from_file_location("execute", EXECUTE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its name is short: a socket is made below it, whose path has about 100 bytes."""
    return tmp_path_factory.mktemp("tour")


@pytest.fixture
def start(folder: Path) -> Callable[[Path], "subprocess.Popen[str]"]:
    """Starts `execute.py` on a notebook; what it and its children write to temporary folders goes to `folder/tmp`."""
    (folder / "tmp").mkdir()

    def started(notebook: Path) -> "subprocess.Popen[str]":
        with fast_workers():
            return subprocess.Popen(
                [sys.executable, EXECUTE, notebook],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=folder,
                env={**os.environ, "TMPDIR": str(folder / "tmp")},
            )

    return started


def small_tour(folder: Path, flights: int = FLIGHTS) -> Path:
    """A copy of the tour with fewer flights."""
    notebook = nbformat.read(TOUR, as_version=4)
    parameters = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    assert len(parameters) == 1
    assert parameters[0].source.startswith("FLIGHTS = 336_776 ")
    parameters[0].source = parameters[0].source.replace("336_776", str(flights), 1)
    path = folder / TOUR.name
    nbformat.write(notebook, path)
    return path


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def assert_whole(notebook: NotebookNode, execute: ModuleType) -> None:
    """It ran once from top to bottom, drew every picture, and says nothing of the machine."""
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    drawing = [cell.id for cell in cells for output in cell.outputs if "image/png" in output.get("data", {})]
    assert tuple(drawing) == PICTURES
    assert all(picture.startswith(b"\x89PNG") for picture in execute.pictures(notebook))
    assert execute.leaks(notebook, NOTEBOOKS) == []
    assert set(notebook.metadata) == set(execute.METADATA)
    assert {name for cell in notebook.cells for name in cell.metadata} == {"tags"}


def test_the_stored_tour_is_whole_and_says_nothing_of_the_machine(execute: ModuleType) -> None:
    assert_whole(nbformat.read(TOUR, as_version=4), execute)
    assert TOUR.stat().st_size < SIZE_BYTES_MAX


@pytest.mark.spark
@pytest.mark.slow
def test_the_tour_runs_and_leaves_nothing(
    folder: Path,
    execute: ModuleType,
    start: Callable[[Path], "subprocess.Popen[str]"],
    processes_in: Callable[[Path], list[str]],
) -> None:
    path = small_tour(folder)
    with start(path) as run:
        said, errors = run.communicate()
    assert (run.returncode, errors) == (0, "")
    assert f"Stored {len(PICTURES)} pictures" in said
    assert processes_in(folder) == []
    assert list((folder / "tmp").iterdir()) == []
    assert {each.name for each in folder.iterdir()} == {"tmp", path.name}

    notebook = nbformat.read(path, as_version=4)
    assert_whole(notebook, execute)
    printed = "".join(output.get("text", "") for cell in code_cells(notebook) for output in cell.outputs)
    assert f"{FLIGHTS:,} published = {FLIGHTS:,} acknowledged = {FLIGHTS:,} read" in printed
    assert f"still {FLIGHTS:,} flights, all distinct" in printed


@pytest.mark.slow
def test_an_interrupt_leaves_nothing(
    folder: Path, start: Callable[[Path], "subprocess.Popen[str]"], processes_in: Callable[[Path], list[str]]
) -> None:
    path = small_tour(folder, flights=60_000)
    before = path.read_bytes()
    with start(path) as run:
        while run.poll() is None and not list((folder / "tmp").glob("silt-*/data/lake/topics/flights/*/*.parquet")):
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        said, errors = run.communicate()
    assert run.returncode != 0, said + errors
    assert processes_in(folder) == []
    assert list((folder / "tmp").iterdir()) == []
    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_notebook_that_fails_or_leaks_is_left_as_it_was(
    folder: Path, start: Callable[[Path], "subprocess.Popen[str]"]
) -> None:
    for source, words in (("1 / 0", "ZeroDivisionError"), ("print(__import__('os').getcwd() + '/x')", "names")):
        path = folder / "small.ipynb"
        nbformat.write(new_notebook(cells=[new_code_cell(source)]), path)
        before = path.read_bytes()
        with start(path) as run:
            _, errors = run.communicate()
        assert run.returncode == 1
        assert words in errors and "\x1b" not in errors and not errors.startswith("Traceback")
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("stdout", "fine: topics/flights, 12:30, 0.5 s", False),
        ("stdout", "in {home}/x", True),
        ("stdout", "in {folder}/x", True),
        ("stdout", "at http://127.0.0.1:41234", True),
        ("stderr", "a warning", True),
    ],
)
def test_what_is_only_true_here_is_told(name: str, text: str, told: bool, execute: ModuleType, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    said = new_output("stream", name=name, text=text.format(home=Path.home(), folder=clone))
    notebook = new_notebook(cells=[new_code_cell("pass", outputs=[said])])
    assert bool(execute.leaks(notebook, clone)) is told
