"""Whom a client certificate stands for: rules that match its names, in order. Pure.

A certificate that no rule matches stands for nobody, whoever signed it. `*` in a pattern stands for one or more
characters of one part of a name, between two dots or two slashes: `*.etl.example` is not `a.b.etl.example`.
"""

import re
from collections.abc import Sequence
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

    def name_of(self, certificate: ClientCertificate) -> str | None:
        """Gives whom the certificate stands for by this rule; None where it does not match, or stands for several."""
        # Names of hosts are the same in any case; a URI is taken as it is.
        is_dns = self.source == "dns"
        names = [name.lower() for name in certificate.dns] if is_dns else certificate.uris
        pattern = _pattern(self.match.lower() if is_dns else self.match, _BETWEEN[self.source])
        found = {self.principal or name for name in names if pattern.fullmatch(name) and _is_name(name)}
        return found.pop() if len(found) == 1 else None


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


def identity_of(certificate: ClientCertificate, rules: Sequence[CertificateRule]) -> Identity | None:
    """Finds who a certificate stands for, by the first rule that matches; None where it stands for nobody."""
    for rule in rules:
        name = rule.name_of(certificate)
        if name is not None:
            until_us = int(certificate.not_after.timestamp()) * MICROS_PER_SECOND
            return Identity(Subject(CERTIFICATE_PREFIX + name), f"cert:{certificate.serial:x}", until_us)
    return None


def _pattern(match: str, between: str) -> re.Pattern[str]:
    part = f"[^{re.escape(between)}]+"
    return re.compile(part.join(re.escape(piece) for piece in match.split("*")))


def _is_name(name: str) -> bool:
    return 0 < len(name) <= NAME_CHARS_MAX and name.isprintable()
