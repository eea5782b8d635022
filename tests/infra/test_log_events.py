"""The catalogue of what the server's log tells: whole, and the page that is made of it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from siltlog.infra.log_events import BY_SENTENCE, EVENTS
from siltlog.infra.log_page import page
from siltlog.server import drain

TOP = Path(__file__).parents[2]
STORED = TOP / "docs" / "logs.md"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
ROOMS = ("infra", "ingest", "consumers", "pipelines", "siltlog/server", "siltlog/cli")
CLIENTS = {"library", "client"}
"""What they log goes through the standard library, for the program that uses them."""


def test_the_stored_page_is_made_of_the_catalogue() -> None:
    assert STORED.read_text("utf-8") == page(), "make it again: python -m siltlog.infra.log_page > docs/logs.md"


def said() -> Iterator[tuple[str, ast.expr]]:
    """Every first argument of a call of the server's logger, and where it stands."""
    for room in ROOMS:
        for path in sorted((TOP / room).rglob("*.py")):
            if CLIENTS & set(path.parts) or path.name == "telemetry.py":
                continue
            module = ast.parse(path.read_text("utf-8"))
            aliases = {
                target.id
                for node in ast.walk(module)
                if isinstance(node, ast.Assign) and any(map(_is_level, ast.walk(node.value)))
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            for node in ast.walk(module):
                if isinstance(node, ast.Call) and (
                    _is_level(node.func) or (isinstance(node.func, ast.Name) and node.func.id in aliases)
                ):
                    yield f"{path.relative_to(TOP)}:{node.lineno}", node.args[0]


def _is_level(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in LEVELS
        and ast.unparse(node.value).rpartition(".")[2].lstrip("_") in ("logger", "log")
    )


@pytest.mark.rule("LG1")
def test_every_line_of_the_server_has_a_name_and_every_name_a_line() -> None:
    constants = {"HURRIED": drain.HURRIED, "UNFINISHED": drain.UNFINISHED}
    found: set[str] = set()
    wrong = []
    for place, sentence in said():
        choices = [sentence.body, sentence.orelse] if isinstance(sentence, ast.IfExp) else [sentence]
        for one in choices:
            text = one.value if isinstance(one, ast.Constant) else constants.get(ast.unparse(one))
            if text in BY_SENTENCE:
                found.add(str(text))
            else:
                wrong.append(f"{place}: {ast.unparse(one)}")
    assert wrong == []
    assert set(BY_SENTENCE) - found == set()
    assert len(found) > 90


@pytest.mark.rule("LG1")
def test_names_can_be_alerted_on() -> None:
    for event in EVENTS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", event.name), event
        assert "|" not in event.sentence + event.action
