"""The reference of Python, made of the docstrings and signatures of the public names."""

import inspect
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

import siltlog
import siltlog.testing

_HEAD = """# Python

Names are imported from `siltlog`; the client needs neither Spark nor Java. What is not here is not public, and may
change at any time.
"""
_PARTS = {
    "Publish": ("Producer", "AsyncProducer", "RecordMetadata", "PartitionMetadata"),
    "Consume": ("Consumer", "AsyncConsumer", "ConsumerRecord", "TopicPartition", "Lag"),
    "Administrate": ("Admin", "AsyncAdmin", "table_uri"),
}
_SELF = ("self", "cls")
_MODULES = re.compile(r"\b(?:siltlog|collections|typing|pyarrow|datetime|os)\.(?:[a-z_0-9]+\.)*(?=[A-Za-z])")
_LINE = 96


def page() -> str:
    """Writes a section for each public name, and one below it for each of its methods."""
    parts = [_HEAD]
    for part, names in _PARTS.items():
        parts.append(f"## {part}\n")
        parts += [text for name in names for text in _name(name, getattr(siltlog, name))]
    parts.append(
        f"## Errors\n\n```text\n{inspect.cleandoc(inspect.getmodule(siltlog.SiltlogError).__doc__ or '')}\n```\n"
    )
    parts += [text for name in errors() for text in _name(name, getattr(siltlog, name))]
    parts.append(
        "## Test\n\nFrom `siltlog.testing`; a guide is [Testing what publishes and consumes](../testing.md).\n"
    )
    parts += [text for name in siltlog.testing.__all__ for text in _name(name, getattr(siltlog.testing, name))]
    return "\n".join(parts)


def errors() -> list[str]:
    """The public names that are errors."""
    kinds = {name: getattr(siltlog, name) for name in siltlog.__all__}
    return [name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Exception)]


def _name(name: str, thing: Any) -> Iterator[str]:
    if not isinstance(thing, type):
        yield _section(3, name, _signature(name, thing), thing.__doc__)
        return
    if issubclass(thing, Exception):
        yield f"### {name}\n\n{_prose(thing.__doc__ if '__doc__' in vars(thing) else None)}"
        return
    yield _section(3, name, _signature(name, thing), thing.__doc__)
    if "__init__" in vars(thing) and thing.__init__.__doc__:
        yield _prose(thing.__init__.__doc__)
    for member, value in inspect.getmembers_static(thing):
        if member.startswith("_"):
            continue
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, types.FunctionType):
            yield _section(4, f"{name}.{member}", _signature(member, value), value.__doc__)
        elif value.__doc__ and isinstance(value, property):
            yield f"#### {name}.{member}\n\n{_prose(value.__doc__)}"


def _section(level: int, name: str, signature: str, doc: str | None) -> str:
    return f"{'#' * level} {name}\n\n```python\n{signature}\n```\n\n{_prose(doc)}"


def _signature(name: str, thing: Callable[..., Any]) -> str:
    signature = inspect.signature(thing)
    parameters = [one for one in signature.parameters.values() if one.name not in _SELF]
    shown = signature.replace(
        parameters=parameters,
        return_annotation=inspect.Signature.empty if isinstance(thing, type) else signature.return_annotation,
    )
    prefix = "async def " if inspect.iscoroutinefunction(thing) else ""
    text = f"{prefix}{name}{_MODULES.sub('', str(shown))}"
    if len(text) <= _LINE:
        return text
    each = [_MODULES.sub("", str(one)) for one in parameters]
    first = next((at for at, one in enumerate(parameters) if one.kind is inspect.Parameter.KEYWORD_ONLY), None)
    if first is not None:
        each.insert(first, "*")
    end = text[text.rindex(" -> ") :] if " -> " in text.rpartition(")")[2] else ""
    return f"{prefix}{name}(\n" + "".join(f"    {one},\n" for one in each) + f"){end}"


def _prose(doc: str | None) -> str:
    """A docstring as Markdown: its lists of keywords are `name: what it is` a line, with continuations indented."""
    lines = inspect.cleandoc(doc or "").split("\n")
    made: list[str] = []
    for line in lines:
        keyword = re.match(r"([a-z][a-z0-9_, ]*): (?=\S)", line)
        if keyword and made and (not made[-1] or made[-1].startswith(("- ", "  "))):
            line = f"- `{keyword[1]}`: {line[keyword.end() :]}"
        elif made and made[-1].startswith(("- ", "  ")) and line.startswith(" "):
            line = f"  {line.strip()}"
        made.append(line)
    return "\n".join(made) + "\n"
