"""The licences of the packages that an installation of Siltlog brings along."""

import re
from collections.abc import Iterable
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata

ALLOWED = frozenset(
    (
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python", "HPND", "ISC"),
        *("MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib"),
    )
)
"""Identifiers of SPDX. What is under MPL-2.0 is used as it is published, and not changed."""

_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_FREE_TEXTS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "CC0": "CC0-1.0",
}
"""What projects write that tell their licence neither as an expression nor by a classifier."""


def licence_of(package: PackageMetadata) -> str:
    """An expression of SPDX: what the package declares, or what its field or classifiers mean; or ""."""
    if declared := package.get("License-Expression"):
        return declared
    text = (package.get("License") or "").strip()
    text = _FREE_TEXTS.get(text, text)
    if text in ALLOWED:
        return text
    named = [line.rpartition(" :: ")[2] for line in package.get_all("Classifier", []) if line.startswith("License ::")]
    return " OR ".join(sorted({_CLASSIFIERS[name] for name in named if name in _CLASSIFIERS}))


def allowed(expression: str) -> bool:
    """Tells whether an expression is allowed: of alternatives one must be, of licences that hold together each."""
    bare = re.sub(r"\(([^()]*)\)", lambda inner: ALLOWED_WORD if allowed(inner[1]) else "none", expression)
    choices = [[word.strip() for word in choice.split(" AND ")] for choice in bare.split(" OR ")]
    return any(all(word in ALLOWED for word in together) for together in choices)


ALLOWED_WORD = "MIT"
"""Stands for a part in brackets that is allowed."""


def licences(packages: Iterable[str]) -> dict[str, str]:
    """Gives licences by name, of packages that are installed here; some are for other systems or versions of Python."""
    found = {}
    for name in packages:
        try:
            found[name] = licence_of(metadata(name))
        except PackageNotFoundError:
            continue
    return found
