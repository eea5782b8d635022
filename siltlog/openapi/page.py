"""The OpenAPI document as one HTML page that needs no script, no style sheet of others and no network."""

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_CODE = re.compile(r"`([^`]+)`")
_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent); }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1rem 1.5rem 4rem; }
h1 { margin-bottom: 0; } h2 { border-bottom: 1px solid var(--line); margin-top: 2.5rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { background: color-mix(in srgb, currentColor 6%, transparent); overflow-x: auto; padding: .6rem .8rem; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; padding: 0 .8rem; }
details details { border-style: dashed; }
summary { cursor: pointer; padding: .45rem 0; }
table { border-collapse: collapse; width: 100%; }
td, th { border-top: 1px solid var(--line); padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top; }
.method { display: inline-block; font: 600 12px ui-monospace, monospace; min-width: 4rem; }
.get { color: #2a7de1; } .post { color: #1f9d55; } .put, .patch { color: #b7791f; } .delete { color: #d64545; }
.quiet { opacity: .7; }
"""


def page(document: Mapping[str, Any]) -> str:
    """`document` is an OpenAPI document whose references are all within it."""
    info = document["info"]
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(info['title'])}: HTTP</title><style>{_STYLE}</style></head><body>",
            f'<h1>{escape(info["title"])}</h1><p class="quiet">HTTP, version {escape(info["version"])}',
            ' · <a href="openapi.json">OpenAPI</a></p>',
            _prose(info["description"]),
            *_tags(document),
            '<h2 id="schemas">Schemas</h2>',
            *schemas(document),
            "</body></html>\n",
        )
    )


def _tags(document: Mapping[str, Any]) -> Iterator[str]:
    for tag in document["tags"]:
        yield f'<h2 id="{escape(tag["name"])}">{escape(tag["name"])}</h2>{_prose(tag["description"])}'
        yield from operations(document, tag["name"])


def operations(document: Mapping[str, Any], tag: str) -> Iterator[str]:
    """Yields one element for each operation that has the tag."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if tag in operation.get("tags", ()):
                yield "\n".join(_operation(document, path, method, operation))


def _operation(document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f'<details id="{escape(operation["operationId"])}"><summary>'
    yield f'<span class="method {method}">{method.upper()}</span> <code>{escape(path)}</code> '
    yield f"{escape(operation['summary'])}</summary>{_prose(operation['description'])}"
    if parameters := operation.get("parameters"):
        yield _table(
            ("Parameter", "In", "Type", ""),
            (
                (f"<code>{escape(one['name'])}</code>", one["in"], _type(one["schema"]), _inline(one["description"]))
                for one in parameters
            ),
        )
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body <code>{escape(media)}</code> {_type(content['schema'])}</p>"
        if (example := content.get("example")) is not None:
            text = example if isinstance(example, str) else json.dumps(example)
            yield f"<pre>{escape(text)}</pre>"
    yield _table(("Status", "Reply", ""), _replies(document, operation["responses"]))
    yield "</details>"


def _replies(document: Mapping[str, Any], responses: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for status, given in responses.items():
        response = given
        if "$ref" in given:
            response = document["components"]["responses"][given["$ref"].rsplit("/", 1)[1]]
        shapes = "<br>".join(
            f"<code>{escape(media)}</code> {_type(content['schema'])}"
            for media, content in response.get("content", {}).items()
        )
        yield status, _prose(response["description"]), shapes


def schemas(document: Mapping[str, Any]) -> Iterator[str]:
    """Yields one element for each schema that has a name."""
    for name, schema in document["components"]["schemas"].items():
        yield "\n".join(_schema(name, schema))


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code></summary>'
    yield _prose(schema.get("description", ""))
    required = schema.get("required", ())
    yield _table(
        ("Member", "Type", ""),
        (
            (
                f"<code>{escape(member)}</code>",
                _type(one),
                _inline(one.get("description", "")) + ("" if member in required else ' <i class="quiet">optional</i>'),
            )
            for member, one in schema.get("properties", {}).items()
        ),
    )
    yield "</details>"


def _type(schema: Mapping[str, Any]) -> str:
    """Says in a few words what a schema allows; a reference is a link."""
    if reference := schema.get("$ref"):
        name = escape(reference.rsplit("/", 1)[1])
        return f'<a href="#schema-{name}">{name}</a>'
    if "allOf" in schema:
        return _type(schema["allOf"][0])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        text = " or ".join(f"<code>{escape(json.dumps(one))}</code>" for one in schema["enum"])
    elif schema.get("type") == "array":
        text = "list" + (f" of {_type(schema['items'])}" if isinstance(schema.get("items"), Mapping) else "")
    else:
        kind = schema.get("type", "anything")
        text = escape(schema.get("format") or (" or ".join(kind) if isinstance(kind, list) else kind))
    if schema.get("default") is not None:
        text += f' <span class="quiet">= {escape(json.dumps(schema["default"]))}</span>'
    return text


def _table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """`rows` are HTML."""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return "<table><tr>" + "".join(f"<th>{head}</th>" for head in heads) + f"</tr>{body}</table>"


def _prose(text: str) -> str:
    """Paragraphs and lists, which is all the Markdown there is in the document."""
    parts = []
    for paragraph in filter(None, text.split("\n\n")):
        lines = paragraph.split("\n")
        first = next((number for number, line in enumerate(lines) if line.startswith("- ")), len(lines))
        if first:
            parts.append(f"<p>{_inline(' '.join(lines[:first]))}</p>")
        if first < len(lines):
            items = " ".join(line.strip() if not line.startswith("- ") else "\n" + line[2:] for line in lines[first:])
            parts.append("<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items.strip().split("\n")) + "</ul>")
    return "".join(parts)


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))
