"""Values that DuckDB gives to Arrow as others: times of day with an offset lose it, and whole numbers from 2^127 on
become negative. They go as text, and the numbers become numbers again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from siltlog.infra.sql.identifiers import quoted

if TYPE_CHECKING:
    import duckdb

_NUMBER = "uhugeint"
_AS_TEXT = ("time with time zone", _NUMBER)


def exact(relation: "duckdb.DuckDBPyRelation") -> "duckdb.DuckDBPyRelation":
    """The same rows, with text for what Arrow would have otherwise, also within lists and the like."""
    texts = [_text_of(kind) for kind in relation.types]
    if not any(texts):
        return relation
    values = [f"CAST(#{at} AS {text})" if text else f"#{at}" for at, text in enumerate(texts, 1)]
    # Columns that are named alike would have other names.
    named = [f"{value} AS {quoted(name)}" for value, name in zip(values, relation.columns, strict=True)]
    return relation.project(", ".join(named))


def numbers(values: Sequence[Any], kind: Any) -> list[Any]:
    """Python's values of a column of an exact relation that had the type `kind` before.

    Numbers in unions stay text: which of its members a value is of is told no more.
    """
    if _text_of(kind) is None or _NUMBER.upper() not in str(kind):
        return list(values)
    return [_number(value, kind) for value in values]


def _text_of(kind: Any) -> str | None:
    """The type that has text for what Arrow would have otherwise; None where nothing of it would be."""
    if kind.id in _AS_TEXT:
        return "VARCHAR"
    if kind.id not in ("list", "array", "struct", "tuple", "map", "union"):
        return None
    within = [(name, each) for name, each in kind.children if name != "size"] if kind.id == "array" else kind.children
    # A union's first child says which of the others it has.
    within = within[1:] if kind.id == "union" else within
    texts = [_text_of(each) for _, each in within]
    if not any(texts):
        return None
    types = [text or str(each) for text, (_, each) in zip(texts, within, strict=True)]
    match kind.id:
        case "list":
            return f"{types[0]}[]"
        case "array":
            return f"{types[0]}[{dict(kind.children)['size']}]"
        case "map":
            return f"MAP({types[0]}, {types[1]})"
        case "tuple":
            return f"TUPLE({', '.join(types)})"
    named = ", ".join(f"{quoted(name)} {text}" for (name, _), text in zip(within, types, strict=True))
    return f"{kind.id.upper()}({named})"


def _number(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    match kind.id:
        case "uhugeint":
            return int(value)
        case "list" | "array":
            return [_number(each, kind.children[0][1]) for each in value]
        case "struct":
            return {name: _number(value[name], each) for name, each in kind.children}
        case "tuple":
            # What has no names is named by Arrow.
            named = enumerate((each for _, each in kind.children), 1)
            return {f"element{at}": _number(value[f"element{at}"], each) for at, each in named}
        case "map":
            (_, of_key), (_, of_value) = kind.children
            return [(_number(key, of_key), _number(each, of_value)) for key, each in value]
    return value
