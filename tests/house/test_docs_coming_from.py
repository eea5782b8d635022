"""docs/coming-from.md names only commands, options, routes, settings and keywords that are there."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from siltlog import Consumer
from siltlog.cli.main import silt
from siltlog.consumers.library.options import ConsumerKeywords
from siltlog.infra import names
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.settings.topic_config import SETTINGS
from siltlog.ingest.library.options import ProducerKeywords

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "coming-from.md").read_text("utf-8")
SYSTEMS = (
    "Kafka",
    "NATS JetStream",
    "RabbitMQ",
    "Redis Streams",
    "pubsub-broker",
    "minibroker",
    "distributed-message-broker",
    "queue",
    "Golog",
)
OF_CLIENTS = {"SILT_URL"}
OF_REQUESTS = {"key", "header", "contains", "wait_ms", "partition"}
KEYWORDS = {
    *ProducerKeywords.__annotations__,
    *ConsumerKeywords.__annotations__,
    *inspect.signature(Consumer.run).parameters,
    *inspect.signature(Consumer.poll).parameters,
}


def here() -> Iterator[str]:
    """The code of what stands in the right column of each table, and of the text around the tables."""
    for line in PAGE.splitlines():
        told = line.removesuffix("|").rpartition(" | ")[2] if line.startswith("|") else line
        yield from re.findall(r"`([^`]+)`", told)


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    command: click.Command = silt
    while words and isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words
        command, words = found, words[1:]
    return command, words


def test_every_system_has_a_table() -> None:
    assert re.findall(r"^## (.+)\n(?:[^|#\n].*\n|\n)*\| there \| here \|", PAGE, re.MULTILINE) == list(SYSTEMS)
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    assert all(len(re.split(r"(?<!\\) \| ", line)) == 2 for line in rows if not line.startswith("|---"))


@pytest.mark.parametrize("code", sorted({code for code in here() if code.startswith("silt ")}))
def test_a_command_is_there_with_its_options(code: str) -> None:
    command, rest = command_of(code.split()[1:])
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= known


def test_routes_are_there() -> None:
    paths = set(msgspec.json.decode((TOP / "docs" / "openapi.json").read_bytes())["paths"])
    named = {path for code in here() for path in re.findall(r"/(?:v1|healthz|readyz|metrics|ui)\b[^ ]*", code)}
    assert {path for path in named if path not in paths} == set()
    assert len(named) > 10


def test_settings_are_there() -> None:
    known = {names.ENV_PREFIX + name.upper() for name in ServerSettings.model_fields} | OF_CLIENTS
    assert {found for code in here() for found in re.findall(r"SILT_[A-Z_]+[A-Z]", code)} <= known
    of_topics = {word for code in here() for word in code.split() if re.fullmatch(r"[a-z]+(\.[a-z]+)+(=.*)?", word)}
    assert {name.partition("=")[0] for name in of_topics} <= {*SETTINGS, "siltlog.toml"}


def test_keywords_are_there() -> None:
    named = {word for code in here() for word in re.findall(r"\b([a-z_]+)=(?=[,)]|$| )", code)}
    assert named - OF_REQUESTS <= KEYWORDS
    assert len(named) > 10
