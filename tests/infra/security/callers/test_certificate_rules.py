import json
import ssl
from datetime import UTC, datetime
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from siltlog.infra.security.callers.certificate_rules import CertificateRules, read_rules
from siltlog.infra.security.certificates import ClientCertificate, ServerContext, client_certificate

END = datetime(2027, 1, 1, tzinfo=UTC)


def certificate(*, uris: tuple[str, ...] = (), dns: tuple[str, ...] = ()) -> ClientCertificate:
    return ClientCertificate(uris, dns, b"issuer", 0x5EED, END)


def rules(*given: dict[str, Any]) -> CertificateRules:
    return CertificateRules(read_rules(json.dumps(given)))


def principal(found: ClientCertificate, *given: dict[str, Any]) -> str | None:
    who = rules(*given).identity_of(found)
    return None if who is None else who.subject.principal


SPIFFE = {"from": "uri", "match": "spiffe://prod/ns/etl/sa/*"}


@pytest.mark.rule("A16")
def test_a_certificate_stands_for_whom_a_rule_says() -> None:
    loader = certificate(uris=("spiffe://prod/ns/etl/sa/loader",))
    assert principal(loader, SPIFFE) == "cert:spiffe://prod/ns/etl/sa/loader"
    assert principal(loader, {**SPIFFE, "principal": "etl"}) == "cert:etl"
    who = rules(SPIFFE).identity_of(loader)
    assert who is not None
    assert (who.subject.groups, who.credential_id) == ((), "cert:5eed")
    assert who.until_us == END.timestamp() * 1_000_000


@pytest.mark.rule("A16")
def test_without_a_rule_it_stands_for_nobody() -> None:
    assert principal(certificate(uris=("spiffe://prod/ns/etl/sa/loader",))) is None
    assert principal(certificate(dns=("a.example",)), SPIFFE) is None
    assert principal(certificate(), SPIFFE, {"from": "dns", "match": "*.example"}) is None


@pytest.mark.parametrize(
    ("uri", "matches"),
    [
        ("spiffe://prod/ns/etl/sa/loader", True),
        ("spiffe://prod/ns/etl/sa/", False),
        ("spiffe://prod/ns/etl/sa/loader/more", False),
        ("spiffe://prod/ns/etl/sa", False),
        ("spiffe://evil/spiffe://prod/ns/etl/sa/loader", False),
        ("SPIFFE://prod/ns/etl/sa/loader", False),
        ("spiffe://prod/ns/etl/sa/loader\n", False),
        ("spiffe://prod/ns/etl/sa/a\u202eb", False),
        ("spiffe://prod/ns/etl/sa/" + "a" * 300, False),
    ],
)
def test_a_star_is_within_one_part_of_a_uri(uri: str, matches: bool) -> None:
    assert (principal(certificate(uris=(uri,)), SPIFFE) is not None) is matches


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.etl.example", "cert:a.etl.example"),
        ("A.ETL.example", "cert:a.etl.example"),
        ("a.b.etl.example", None),
        (".etl.example", None),
        ("etl.example", None),
        ("a.etlxexample", None),
        ("a.etl.example.evil.example", None),
    ],
)
def test_a_star_is_within_one_label_of_a_host(name: str, found: str | None) -> None:
    assert principal(certificate(dns=(name,)), {"from": "dns", "match": "*.etl.Example"}) == found


def test_signs_of_regular_expressions_are_nothing_special() -> None:
    rule = {"from": "uri", "match": "urn:a.b|c(d)[e]?*", "principal": "x"}
    assert principal(certificate(uris=("urn:a.b|c(d)[e]?1",)), rule) == "cert:x"
    for uri in ("urn:axb|c(d)[e]?1", "urn:a.b", "c(d)", "urn:a.b|cd1"):
        assert principal(certificate(uris=(uri,)), rule) is None


def test_the_first_rule_that_matches_counts() -> None:
    found = certificate(uris=("spiffe://prod/ns/etl/sa/loader",), dns=("loader.example",))
    host = {"from": "dns", "match": "*.example", "principal": "by-host"}
    assert principal(found, host, SPIFFE) == "cert:by-host"
    assert principal(found, {**SPIFFE, "principal": "by-uri"}, host) == "cert:by-uri"


@pytest.mark.rule("A16")
def test_one_with_several_names_for_a_rule_stands_for_none_of_them() -> None:
    two = certificate(uris=("spiffe://prod/ns/etl/sa/a", "spiffe://prod/ns/etl/sa/b"))
    assert principal(two, SPIFFE) is None
    assert principal(two, SPIFFE, {"from": "uri", "match": "spiffe://prod/ns/etl/sa/a"}) is None
    assert principal(two, {**SPIFFE, "principal": "etl"}) == "cert:etl"


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "no json",
        '[{"from": "cn", "match": "a"}]',
        '[{"from": "uri"}]',
        '[{"match": "a"}]',
        '[{"from": "uri", "match": "a", "principle": "b"}]',
        '[{"from": "uri", "match": 1}]',
        '[{"from": "uri", "match": ""}]',
        '[{"from": "uri", "match": "*"}]',
        '[{"from": "uri", "match": "*://*/*"}]',
        '[{"from": "dns", "match": "*.*"}]',
        '[{"from": "dns", "match": "a", "principal": "b\\n"}]',
        json.dumps([{"from": "dns", "match": "a"}] * 1_001),
    ],
)
def test_rules_that_are_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_rules(text)


def test_no_rules() -> None:
    assert read_rules("") == read_rules("[]") == ()


def test_a_certificate_that_an_authority_signed() -> None:
    leaf = trustme.CA().issue_cert("loader.example")
    pem = leaf.cert_chain_pems[0].bytes()
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    found = client_certificate(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER), context)
    assert principal(found, {"from": "dns", "match": "*.example"}) == "cert:loader.example"
