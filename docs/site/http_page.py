"""The reference of HTTP, made of the OpenAPI document."""

import json
from pathlib import Path

from siltlog.openapi import page as openapi_page

DOCUMENT = Path(__file__).parents[1] / "openapi.json"


def page() -> str:
    """Writes a part for each tag, with an entry to open for each of its operations, and the schemas."""
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    parts = [
        "# HTTP\n",
        document["info"]["description"] + "\n",
        "A server shows this page at `/docs`, and the [OpenAPI document](../openapi.json) of which it is made at "
        "`/openapi.json`. The words of errors are for people; programs go by `code`.\n",
    ]
    for tag in document["tags"]:
        parts.append(f"## {tag['name']}\n\n{tag['description']}\n")
        parts += [_block(each) for each in openapi_page.operations(document, tag["name"])]
    parts.append("## Schemas\n")
    parts += [_block(each) for each in openapi_page.schemas(document)]
    return "\n".join(parts)


def _block(html: str) -> str:
    """One block of HTML: an empty line would end it."""
    return html.replace("\n\n", "\n") + "\n"
