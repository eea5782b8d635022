"""Whom a client certificate stands for: rules that match its names, in order. Pure.

A certificate that no rule matches stands for nobody, whoever signed it. `*` in a pattern stands for one or more
characters of one part of a name, between two dots or two slashes: `*.etl.example` is not `a.b.etl.example`.
"""

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from siltlog.infra.clock import MICROS_PER_SECOND
from siltlog.infra.security.access import Subject
from siltlog.infra.security.certificates import ClientCertificate
from siltlog.infra.security.grant import Identity

CERTIFICATE_PREFIX = "cert:"
NAME_CHARS_MAX = 256
RULES_MAX = 1_000
_BETWEEN = {"dns": ".", "uri": "/"}
_KNOWN = ("from", "match", "principal")


class CertificateRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from"}):
    """Matches names of one sort. Without a `principal` the caller is called by the name that matched."""

    source: Literal["uri", "dns"]
    match: str
    principal: str = ""

    def pattern(self) -> re.Pattern[str]:
        part = f"[^{re.escape(_BETWEEN[self.source])}]+"
        match = self.match.lower() if self.source == "dns" else self.match
        return re.compile(part.join(re.escape(piece) for piece in match.split("*")))


class CertificateRules:
    """Rules in order; the first that matches counts."""

    def __init__(self, rules: Iterable[CertificateRule]) -> None:
        self._rules = tuple((rule, rule.pattern()) for rule in rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def identity_of(self, certificate: ClientCertificate) -> Identity | None:
        """Finds who a certificate stands for; None where it stands for nobody, or for several by one rule."""
        # Names of hosts are the same in any case; a URI is taken as it is.
        names = {"dns": [name.lower() for name in certificate.dns], "uri": certificate.uris}
        for rule, pattern in self._rules:
            matching = (name for name in names[rule.source] if pattern.fullmatch(name) and _is_name(name))
            found = {rule.principal or name for name in matching}
            if len(found) > 1:
                return None
            if found:
                until_us = int(certificate.not_after.timestamp()) * MICROS_PER_SECOND
                return Identity(Subject(CERTIFICATE_PREFIX + found.pop()), f"cert:{certificate.serial:x}", until_us)
        return None


def read_rules(text: str) -> tuple[CertificateRule, ...]:
    """Reads a JSON array of rules. Raises ValueError that says which is wrong."""
    if not text:
        return ()
    try:
        rules = msgspec.json.decode(text, type=tuple[CertificateRule, ...])
    except msgspec.DecodeError as error:
        raise ValueError(f"it is no list of rules with {', '.join(_KNOWN)}: {error}") from None
    if len(rules) > RULES_MAX:
        raise ValueError(f"it has more than {RULES_MAX} rules")
    for rule in rules:
        if not rule.match.strip("*./:"):
            raise ValueError(f"the rule for {rule.match!r} would match every certificate; name what it is to match")
        if rule.principal and not _is_name(rule.principal):
            raise ValueError(f"{rule.principal[:60]!r} is no name of a principal")
    return rules


def _is_name(name: str) -> bool:
    return 0 < len(name) <= NAME_CHARS_MAX and name.isprintable()
