"""Names in SQL: how topics are called there, and how names are quoted in DuckDB and in Spark."""

import re

DATABASE = "silt"
"""Any topic is also found as `silt.<name>`."""
PLAIN = re.compile(r"\w+", re.ASCII)
"""A name that needs no quotes."""
_TEXT = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"
_NAMES = re.compile(rf"{_TEXT}|`((?:[^`]|``)+)`|(?<!\w)(offset)(?!\w)(?!\s*[\d(?$])", re.DOTALL | re.IGNORECASE)
"""Texts and comments, names in backquotes, and `offset` where no number follows: a column's name, which DuckDB reserves
for the clause."""
_PART = re.compile(r'"((?:[^"]|"")*)"|([^\s."]+)')


def with_quoted_names(sql: str) -> str:
    """Names as Spark SQL has them become names in double quotes; texts and comments stay as they are."""
    return _NAMES.sub(_requoted, sql)


def place_before_quoting(sql: str, at: int) -> int:
    """Finds where in `sql` that stands which is at `at` in `with_quoted_names(sql)`."""
    longer = 0
    for found in _NAMES.finditer(sql):
        begins, written = found.start() + longer, len(_requoted(found))
        if at < begins:
            break
        if at < begins + written:
            return found.start() + (at - begins if written == len(found[0]) else 0)
        longer += written - len(found[0])
    return at - longer


def _requoted(found: re.Match[str]) -> str:
    name = found[1].replace("``", "`") if found[1] else found[2]
    return quoted(name) if name else found[0]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def parts_of(table: str) -> list[str]:
    """The parts of a table's name, without their quotes; `table` is as DuckDB writes it, with its alias after it."""
    parts, at = [], 0
    while (found := _PART.match(table, at)) is not None:
        parts.append(found[1].replace('""', '"') if found[2] is None else found[2])
        at = found.end() + 1
        if table[found.end() : at] != ".":
            break
    return parts
