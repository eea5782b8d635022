"""The rules of docs/design: each has an id of its own, is held by a test that names it, and is found from the map."""

import re
from collections import Counter
from pathlib import Path

TOP = Path(__file__).parents[2]
MAP = TOP / "ARCHITECTURE.md"
PAGES = sorted((TOP / "docs" / "design").glob("*.md"))
MAP_CHARACTERS_MAX = 12_000
ROW = re.compile(r"^(?:\| |- \*\*)([A-Z]{1,2}\d+)(?: \||\*\*)", re.MULTILINE)
HELD = re.compile(r"mark\.rule\(([^)]*)\)")
INDEXED = re.compile(r"([A-Z]{1,2})1 to \1(\d+)")


MUTANTS = re.compile(r"^MUTANTS\b[^\n]*= \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
MUTANT = re.compile(r'^    "([A-Z]{1,2}\d+) [^"]+": ', re.MULTILINE)
OF_A_CLUSTER = TOP / "docs" / "design" / "cluster.md"
NO_MUTANT: dict[str, str] = {}
"""Rules of clusters that no mutant switches off, and why."""


def stated() -> list[str]:
    return [rule for page in PAGES for rule in ROW.findall(page.read_text("utf-8"))]


def letters_of(rule: str) -> str:
    return rule.rstrip("0123456789")


def test_each_rule_has_an_id_of_its_own_and_a_row_that_says_what_it_prevents() -> None:
    rules = Counter(stated())
    assert [rule for rule, times in rules.items() if times > 1] == []
    for letters in {letters_of(rule) for rule in rules}:
        numbers = sorted(int(rule.removeprefix(letters)) for rule in rules if letters_of(rule) == letters)
        assert numbers == list(range(1, len(numbers) + 1)), f"rules {letters}: {numbers}"


def test_each_rule_is_named_by_a_test_and_no_test_names_another() -> None:
    held = {
        rule
        for path in (TOP / "tests").rglob("test_*.py")
        for names in HELD.findall(path.read_text("utf-8"))
        for rule in re.findall(r"[A-Z]{1,2}\d+", names)
    }
    assert (sorted(set(stated()) - held), sorted(held - set(stated()))) == ([], [])


def test_the_map_is_short_and_leads_to_every_page() -> None:
    text = MAP.read_text("utf-8")
    assert len(text) <= MAP_CHARACTERS_MAX
    assert {f"docs/design/{page.name}" for page in PAGES} <= set(re.findall(r"docs/design/\w+\.md", text))


def test_the_map_lists_the_rules_there_are() -> None:
    counts = Counter(letters_of(rule) for rule in stated())
    assert dict(counts) == {letter: int(last) for letter, last in INDEXED.findall(MAP.read_text("utf-8"))}


def test_each_rule_of_a_cluster_has_a_mutant_that_a_test_notices() -> None:
    mutants = [
        rule
        for path in (TOP / "tests").rglob("test_*.py")
        for table in MUTANTS.findall(path.read_text("utf-8"))
        for rule in MUTANT.findall(table)
    ]
    rules = ROW.findall(OF_A_CLUSTER.read_text("utf-8"))
    assert set(rules) - set(mutants) == NO_MUTANT.keys()
    assert all(NO_MUTANT.values())
    assert set(mutants) <= set(stated())
