import base64
import hashlib
import hmac
import json
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from siltlog.infra.security.callers.tokens import (
    GROUPS_MAX,
    NAME_CHARS_MAX,
    SKEW_SECONDS,
    TOKEN_CHARS_MAX,
    Expected,
    SigningKeys,
    TokenRefused,
    UnknownSigningKey,
    mark_of,
    read_keys,
    verify,
    verify_id_token,
)
from siltlog.infra.security.grant import Identity
from tests.rigs.signed_tokens import (
    CLAIMS,
    EC,
    ED,
    EXPECTED,
    ISSUER,
    KEYS,
    NOW_S,
    NOW_US,
    RSA,
    SIGNERS,
    STRANGE,
    key_set,
    part,
    public,
    signed,
    token,
)  # fmt: skip


def read(text: str, now_us: int = NOW_US, expected: Expected = EXPECTED, keys: SigningKeys = KEYS) -> Identity:
    return verify(text, keys, expected, now_us)


def refused(text: str, **arguments: Any) -> TokenRefused:
    with pytest.raises(TokenRefused) as caught:
        read(text, **arguments)
    for piece in text.split("."):
        assert len(piece) < 8 or piece not in str(caught.value)
    return caught.value


@pytest.mark.rule("A4")
@pytest.mark.parametrize("algorithm", SIGNERS)
def test_a_good_token_says_who_has_it(algorithm: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read(token(algorithm))
    assert found.subject == ("user:ada", ("flights", "ops"))
    assert found.until_us == NOW_US + (300 + SKEW_SECONDS) * 1_000_000
    mark = SIGNERS[algorithm][1].thumbprint()
    assert found.credential_id == f"jwt:{mark}:7f2c"
    assert mark_of(found.credential_id) == mark


# Signatures


def test_a_token_without_a_signature() -> None:
    for name in ("none", "None", "NONE", "nOnE"):
        head = part({"alg": name, "kid": "rsa", "typ": "JWT"})
        assert refused(f"{head}.{part(CLAIMS)}.").reason == "malformed"
        assert refused(f"{head}.{part(CLAIMS)}.AAAA").reason == "malformed"
    good = token()
    assert refused(good[: good.rindex(".") + 1]).reason == "malformed"
    assert refused(good[: good.rindex(".")]).reason == "malformed"


@pytest.mark.rule("A4")
@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_public_key_is_no_password(algorithm: str) -> None:
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[algorithm]
    for secret in (RSA.as_pem(private=False), RSA.as_der(private=False), json.dumps(public(RSA)).encode(), b""):
        text = f"{part({'alg': algorithm, 'kid': 'rsa', 'typ': 'JWT'})}.{part(CLAIMS)}"
        forged = f"{text}.{part(hmac.new(secret, text.encode(), digest).digest())}"
        assert refused(forged).reason == "malformed"


@pytest.mark.parametrize(
    "name", ["rs256", "Rs256", "RS256 ", " RS256", "RS384", "ES384", "Ed25519", "", None, 1, ["RS256"]]
)
def test_algorithms_that_are_none_of_ours(name: Any) -> None:
    whole = {"alg": name, "kid": "rsa", "typ": "JWT"}
    assert refused(signed(whole, CLAIMS, "RS256", RSA)).reason == "malformed"
    del whole["alg"]
    assert refused(signed(whole, CLAIMS, "RS256", RSA)).reason == "malformed"


@pytest.mark.parametrize("algorithm", SIGNERS)
@pytest.mark.parametrize("said", SIGNERS)
@pytest.mark.parametrize("kid", ["rsa", "ec", "ed"])
def test_algorithm_and_key_fit_each_other(algorithm: str, said: str, kid: str) -> None:
    """Whatever a token says of its algorithm and key, the key must be of that type, and have signed it that way."""
    forged = signed({"alg": said, "kid": kid, "typ": "JWT"}, CLAIMS, algorithm, SIGNERS[algorithm][1])
    if (algorithm, SIGNERS[algorithm][0]) == (said, kid):
        assert read(forged).subject.principal == "user:ada"
    else:
        assert refused(forged).reason == "unknown"


def test_a_key_of_somebody_else() -> None:
    assert refused(signed({"alg": "RS256", "kid": "rsa", "typ": "JWT"}, CLAIMS, "RS256", STRANGE)).reason == "unknown"


@pytest.mark.rule("A4")
@pytest.mark.parametrize("member", ["jku", "x5u", "jwk", "x5c"])
def test_the_token_brings_no_key_of_its_own(member: str) -> None:
    brought: dict[str, Any] = {
        "jku": "https://evil.example/keys",
        "x5u": "https://evil.example/cert",
        "jwk": public(STRANGE),
        "x5c": ["MIIB"],
    }
    header = {"alg": "RS256", "typ": "JWT", member: brought[member]}
    for kid in ("rsa", "evil"):
        assert refused(signed({**header, "kid": kid}, CLAIMS, "RS256", STRANGE)).reason == "unknown"
    # They are not looked at in a token of the issuer's own either.
    assert read(signed({**header, "kid": "rsa"}, CLAIMS, "RS256", RSA)).subject.principal == "user:ada"


@pytest.mark.parametrize(
    "kid", ["other", "../../../../dev/null", "rsa\x00", "", "RSA", "' OR 1=1 --", "https://evil.example", "x" * 4000]
)
def test_a_key_id_is_looked_up_and_nothing_else(kid: str) -> None:
    forged = signed({"alg": "RS256", "kid": kid, "typ": "JWT"}, CLAIMS, "RS256", RSA)
    with pytest.raises(UnknownSigningKey):
        read(forged)


@pytest.mark.parametrize("kid", [1, None, ["rsa"], {"kid": "rsa"}, True])
def test_a_key_id_that_is_no_text(kid: Any) -> None:
    expected = "unknown" if kid is None else "malformed"
    assert refused(signed({"alg": "RS256", "kid": kid, "typ": "JWT"}, CLAIMS, "RS256", STRANGE)).reason == expected


def test_a_token_that_names_no_key_has_the_only_one_that_fits() -> None:
    text = signed({"alg": "RS256", "typ": "JWT"}, CLAIMS, "RS256", RSA)
    assert read(text).subject.principal == "user:ada"
    with pytest.raises(UnknownSigningKey):
        read(text, keys=key_set(public(RSA), public(STRANGE, kid="second")))


@pytest.mark.rule("A4")
def test_zeros_are_no_signature_of_a_curve() -> None:
    text = f"{part({'alg': 'ES256', 'kid': 'ec', 'typ': 'JWT'})}.{part(CLAIMS)}"
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    for r, s in ((0, 0), (1, 0), (0, 1), (order, order), (order, 1), (2**256 - 1, 2**256 - 1)):
        forged = f"{text}.{part(r.to_bytes(32) + s.to_bytes(32))}"
        assert refused(forged).reason == "unknown"
    good = token("ES256")
    signature = base64.urlsafe_b64decode(good.rpartition(".")[2] + "==")
    for odd in (signature[:-1], signature + b"\0", b"\0" + signature, signature[:32], b"\0" * 64):
        assert refused(f"{good.rpartition('.')[0]}.{part(odd)}").reason == "unknown"


def test_extensions_of_the_signature_are_refused() -> None:
    asked: list[dict[str, Any]] = [{"crit": ["exp"], "exp": 1}, {"crit": []}, {"crit": ["b64"], "b64": False}]
    for header in (*asked, {"b64": True}, {"b64": False}):
        assert refused(token(header=header)).reason == "malformed"
    # RFC 7797: the payload as it is, which others would read as base64.
    head = part({"alg": "RS256", "kid": "rsa", "typ": "JWT", "b64": False, "crit": ["b64"]})
    payload = part(CLAIMS)
    signature = jws.JWSRegistry.algorithms["RS256"].sign(f"{head}.{payload}".encode(), RSA)
    assert refused(f"{head}.{payload}.{part(signature)}").reason == "malformed"


def test_a_detached_payload_is_refused() -> None:
    head, _, signature = token().split(".")
    assert refused(f"{head}..{signature}").reason == "malformed"


@pytest.mark.parametrize("algorithm", SIGNERS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
@pytest.mark.rule("A4")
def test_any_bit_that_is_another_makes_it_no_token(algorithm: str, data: st.DataObject) -> None:
    content = bytearray(GOOD[algorithm].encode())
    at = data.draw(st.integers(0, len(content) * 8 - 1))
    content[at // 8] ^= 1 << at % 8
    refused(content.decode("latin-1"))


GOOD = {algorithm: token(algorithm) for algorithm in SIGNERS}


# Forms


@pytest.mark.parametrize("name", ["at+jwt", "AT+JWT", "JWT", "jwt", "application/at+jwt", None])
def test_types_of_access_tokens(name: str | None) -> None:
    header = {"alg": "RS256", "kid": "rsa"} | ({"typ": name} if name else {})
    assert read(signed(header, CLAIMS, "RS256", RSA)).subject.principal == "user:ada"


@pytest.mark.parametrize("name", ["logout+jwt", "dpop+jwt", "secevent+jwt", "JOSE", "", None, 1, ["JWT"], {}])
def test_types_of_other_tokens(name: Any) -> None:
    assert refused(token(header={"typ": name})).reason == "malformed"


def test_members_that_come_twice() -> None:
    claims = json.dumps({name: value for name, value in CLAIMS.items() if name != "sub"})
    twice = (claims[:-1] + ', "sub": "ada", "sub": "root"}').encode()
    header = b'{"alg": "RS256", "kid": "rsa", "typ": "JWT", "alg": "RS256"}'
    good = {"alg": "RS256", "kid": "rsa", "typ": "JWT"}
    assert refused(signed(good, twice, "RS256", RSA)).reason == "malformed"
    assert refused(signed(header, CLAIMS, "RS256", RSA)).reason == "malformed"
    deep = (claims[:-1] + ', "sub": "ada", "realm": {"a": 1, "a": 2}}').encode()
    assert refused(signed(good, deep, "RS256", RSA)).reason == "malformed"


def test_a_token_that_is_too_long() -> None:
    long = token(more="x" * TOKEN_CHARS_MAX)
    assert len(long) > TOKEN_CHARS_MAX
    assert refused(long).reason == "malformed"
    room = token(more="x" * 5_000)
    assert 6_500 < len(room) <= TOKEN_CHARS_MAX
    assert read(room).subject.principal == "user:ada"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_what_is_deep(opening: bytes) -> None:
    deep = opening * (5_800 // len(opening))
    good = {"alg": "RS256", "kid": "rsa"}
    assert refused(signed(good, deep, "RS256", RSA)).reason == "malformed"
    assert refused(signed(deep, CLAIMS, "RS256", RSA)).reason == "malformed"
    nested = b'{"a":' + b"[" * 2_800 + b"]" * 2_800 + b"}"
    # From Python 3.12 on it can be read, and has no issuer.
    assert refused(signed(good, nested, "RS256", RSA)).reason in ("malformed", "unknown")


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b'"text"', b"1", b"\xff\xfe", b"{", b'{"exp": NaN}', b"\xef\xbb\xbf{}"]
)
def test_parts_that_are_no_objects(content: bytes) -> None:
    good = {"alg": "RS256", "kid": "rsa", "typ": "JWT"}
    assert refused(signed(good, content, "RS256", RSA)).reason == "malformed"
    assert refused(signed(content, CLAIMS, "RS256", RSA)).reason == "malformed"
    assert refused(signed(good, json.dumps(CLAIMS).encode("utf-16"), "RS256", RSA)).reason == "malformed"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: "a.b",
        lambda text: text + ".",
        lambda text: text + ".e30",
        lambda text: text + "=",
        lambda text: text + "\n",
        lambda text: " " + text,
        lambda text: text.replace(".", ".\n", 1),
        lambda text: text.replace(".", "..", 1),
        lambda text: text[:-1] + "ä",
        lambda text: text.replace("-", "+").replace("_", "/") + "/",
    ],
)  # fmt: skip
def test_what_is_no_token(change: Callable[[str], str]) -> None:
    assert refused(change(token())).reason == "malformed"


@given(st.text())
def test_any_text_is_refused(text: str) -> None:
    assert refused(text).reason == "malformed"


@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=200))
def test_any_parts_are_refused(head: bytes, claims: bytes, signature: bytes) -> None:
    refused(f"{part(head)}.{part(claims)}.{part(signature)}")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk", "jku", "x5c", "other"]), VALUES),
    st.dictionaries(st.sampled_from([*CLAIMS, "nonce", "typ", "hasgroups", "_claim_names", "email"]), VALUES),
)
def test_whatever_an_issuer_signs_is_read_or_refused(header: dict[str, Any], claims: dict[str, Any]) -> None:
    for head in (header, {"alg": "EdDSA", "kid": "ed"} | {name: header[name] for name in header if name == "typ"}):
        for body in (claims, {**CLAIMS, **claims}):
            text = signed(head, body, "EdDSA", ED)
            try:
                found = read(text)
            except TokenRefused:
                continue
            assert head == {"alg": "EdDSA", "kid": "ed"} | ({"typ": head["typ"]} if "typ" in head else {})
            assert found.subject.principal == f"user:{body['sub']}"


# Claims


@pytest.mark.rule("A4")
@pytest.mark.parametrize(
    "issuer",
    [None, "", ISSUER + "/", ISSUER.upper(), "https://evil.example", ISSUER.replace("https", "http"), [ISSUER], 1],
)
def test_another_issuer(issuer: Any) -> None:
    assert refused(token(iss=issuer)).reason == "unknown"


@pytest.mark.rule("A4")
@pytest.mark.parametrize("audience", [None, "", "other", [], ["other"], ["siltlog", 1], {"siltlog": 1}, "siltlog2", 1])
def test_another_audience(audience: Any) -> None:
    assert refused(token(aud=audience)).reason == "unknown"


def test_an_audience_is_one_or_several() -> None:
    assert read(token(aud="siltlog")).subject.principal == "user:ada"


@pytest.mark.parametrize(
    ("exp", "reason"),
    [
        (NOW_S - SKEW_SECONDS, "expired"),
        (NOW_S - SKEW_SECONDS + 1, ""),
        (NOW_S - SKEW_SECONDS + 0.5, ""),
        (0, "expired"),
        (-1, "malformed"),
        (None, "malformed"),
        ("9999999999", "malformed"),
        (True, "malformed"),
        (float("inf"), "malformed"),
        (float("nan"), "malformed"),
        (10**400, "malformed"),
        (10**12, "malformed"),
        ([NOW_S + 300], "malformed"),
    ],
)
def test_when_it_ends(exp: Any, reason: str) -> None:
    text = token(exp=exp)
    if reason:
        assert refused(text).reason == reason
    else:
        assert (read(text).until_us or 0) > NOW_US
        assert refused(text, now_us=read(text).until_us or 0).reason == "expired"


@pytest.mark.parametrize(
    ("nbf", "reason"),
    [
        (None, ""),
        (NOW_S + SKEW_SECONDS, ""),
        (NOW_S + SKEW_SECONDS + 1, "unknown"),
        ("0", "malformed"),
        (False, "malformed"),
        (float("nan"), "malformed"),
    ],
)
def test_when_it_begins(nbf: Any, reason: str) -> None:
    text = token(nbf=nbf)
    if reason:
        assert refused(text).reason == reason
    else:
        assert read(text).subject.principal == "user:ada"


@pytest.mark.rule("A5")
@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "n"},
        {"at_hash": "h"},
        {"c_hash": "h"},
        {"nonce": ""},
        {"aud": ["siltlog", "siltlog-page"]},
        {"typ": "ID"},
        {"typ": "Refresh"},
        {"typ": "Offline"},
        {"cnf": {"jkt": "x"}},
    ],
)
def test_a_token_of_another_kind_opens_nothing(claims: dict[str, Any]) -> None:
    assert refused(token(**claims)).reason == "unknown"
    assert read(token(typ="Bearer")).subject.principal == "user:ada"


@pytest.mark.parametrize("sub", [None, "", 1, ["ada"], "ada\n", "a" * (NAME_CHARS_MAX + 1), "ada\u202e", "a\x00"])
def test_who_has_it_must_be_a_name(sub: Any) -> None:
    assert refused(token(sub=sub)).reason == "unknown"


def test_the_claims_are_those_of_the_settings() -> None:
    expected = EXPECTED._replace(principal_claim="email", groups_claim="roles")
    text = token(email="ada@example.com", roles="ops")
    assert read(text, expected=expected).subject == ("user:ada@example.com", ("ops",))
    assert read(token(email="ada@example.com"), expected=expected).subject.groups == ()
    assert refused(token(), expected=expected).reason == "unknown"
    assert refused(token(email="ada@example.com", email_verified=False), expected=expected).reason == "unknown"


@pytest.mark.rule("A5")
def test_a_name_does_not_make_itself_another_kind() -> None:
    found = read(token(sub="key:ops", groups=["key:ops", "user:root", "local", "*"])).subject
    assert found.principal == "user:key:ops"
    for wanted in ("key:ops", "user:root", "local"):
        assert not found.answers_to(wanted)
    assert found.answers_to("group:key:ops")
    assert found.answers_to("*")


@pytest.mark.rule("A5")
@pytest.mark.parametrize(
    "claims",
    [
        {"groups": [1]},
        {"groups": [""]},
        {"groups": {"flights": 1}},
        {"groups": ["a\n"]},
        {"groups": ["a" * (NAME_CHARS_MAX + 1)]},
        {"groups": [f"g{index}" for index in range(GROUPS_MAX + 1)]},
        {"groups": None, "hasgroups": True},
        {"groups": None, "_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://g"}}},
    ],
)
def test_groups_are_read_whole_or_not_at_all(claims: dict[str, Any]) -> None:
    assert refused(token(**claims)).reason == "unknown"


def test_no_groups_and_as_many_as_there_may_be() -> None:
    assert read(token(groups=None)).subject.groups == ()
    many = [f"g{index}" for index in range(GROUPS_MAX)]
    assert read(token(groups=many)).subject.groups == tuple(many)


@pytest.mark.parametrize("jti", [None, 1, "", "line\n", "x" * 300])
def test_a_token_without_an_id_is_named_by_its_digest(jti: Any) -> None:
    text = token(jti=jti)
    assert read(text).credential_id.split(":")[2] == hashlib.sha256(text.encode()).hexdigest()[:16]


# Key sets


@pytest.mark.rule("A4")
@pytest.mark.parametrize(
    "unfit",
    [
        OctKey.generate_key(256, {"kid": "rsa"}).as_dict(),
        public(RSA, use="enc"),
        public(RSA, key_ops=["encrypt"]),
        public(RSA, alg="RS384"),
        public(RSA, alg="RSA-OAEP"),
        public(RSA, kid=1),
        {"kty": "RSA", "kid": "rsa"},
        {"kty": "RSA", "kid": "rsa", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "kid": "rsa", "n": 1, "e": "AQAB"},
        public(ECKey.generate_key("P-384", {"kid": "rsa"})),
        public(OKPKey.generate_key("X25519", {"kid": "rsa"})),
        {"kty": "EC", "kid": "rsa", "crv": "P-256", "x": part(b"\1" * 32), "y": part(b"\1" * 32)},
        {"kty": ["RSA"], "kid": "rsa"},
        {"kid": "rsa"},
    ],
)
def test_keys_that_are_for_something_else(unfit: dict[str, Any]) -> None:
    keys = key_set(unfit, public(EC))
    assert keys.marks == {EC.thumbprint()}
    with pytest.raises(UnknownSigningKey):
        read(token(), keys=keys)
    with pytest.raises(ValueError, match="no key"):
        key_set(unfit)


def test_keys_that_are_too_short_are_none() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short = RSAKey.generate_key(1024, {"kid": "rsa"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="no key"):
            key_set(public(short))


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"keys": {}}', b'{"keys": []}', b"\xff", b'{"keys": [1]}', b"[" * 10_000]
)
def test_what_is_no_key_set(content: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        read_keys(content)


def test_a_key_for_one_algorithm_is_for_no_other() -> None:
    keys = key_set(public(RSA, alg="RS256"))
    assert read(token("RS256"), keys=keys).subject.principal == "user:ada"
    with pytest.raises(UnknownSigningKey):
        read(token("PS256"), keys=keys)


def test_one_id_may_be_of_two_keys_that_differ_in_type() -> None:
    keys = key_set(public(RSA, kid="one"), public(EC, kid="one"))
    for algorithm in ("RS256", "ES256"):
        assert read(token(algorithm, {"kid": "one"}), keys=keys).subject.principal == "user:ada"


def test_a_private_part_is_not_kept() -> None:
    keys = read_keys(json.dumps({"keys": [RSA.as_dict(private=True)]}).encode())
    assert not keys.find("rsa", "RS256").key.is_private
    assert keys.marks == key_set(public(RSA)).marks
    assert keys.marks != key_set(public(STRANGE)).marks


ID_CLAIMS = {**CLAIMS, "aud": "siltlog-page", "nonce": "n"}


def id_token(**said: Any) -> str:
    return token(header={"typ": "JWT"}, **{**ID_CLAIMS, **said})


@pytest.mark.rule("A62")
def test_an_id_token_says_who_logged_in() -> None:
    for said in ({}, {"azp": "siltlog-page"}, {"aud": ["siltlog-page", "other"], "azp": "siltlog-page"}, {"typ": "ID"}):
        text = id_token(**said)
        identity, sub = verify_id_token(text, KEYS, EXPECTED, "n", NOW_US)
        assert (identity.subject, sub) == (("user:ada", ("flights", "ops")), "ada")
        assert mark_of(identity.credential_id) in KEYS.marks
    assert verify_id_token(id_token(nonce=None), KEYS, EXPECTED, None, NOW_US)[1] == "ada"


@pytest.mark.rule("A62")
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"nonce": "m"}, "another login"),
        ({"nonce": None}, "another login"),
        ({"aud": "siltlog"}, "not for the login"),
        ({"aud": ["siltlog-page", "other"]}, "not for the login"),
        ({"azp": "other"}, "not for the login"),
        ({"iss": "https://evil.example"}, "not the issuer"),
        ({"exp": NOW_S - SKEW_SECONDS}, "expired"),
        ({"nbf": NOW_S + SKEW_SECONDS + 1}, "not valid yet"),
        ({"exp": None}, "no time in seconds"),
        ({"typ": "Refresh"}, "another kind"),
        ({"sub": 7}, "another kind"),
    ],
)
def test_what_is_no_id_token_of_this_login_is_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenRefused, match=why):
        verify_id_token(id_token(**said), KEYS, EXPECTED, "n", NOW_US)


@pytest.mark.rule("A62")
def test_an_id_token_chooses_neither_its_algorithm_nor_its_key() -> None:
    unsigned = f"{part({'alg': 'none'})}.{part(ID_CLAIMS)}.x"
    with pytest.raises(TokenRefused, match="algorithm"):
        verify_id_token(unsigned, KEYS, EXPECTED, "n", NOW_US)
    strange = signed({"alg": "RS256", "kid": "rsa"}, ID_CLAIMS, "RS256", STRANGE)
    with pytest.raises(TokenRefused, match="signature"):
        verify_id_token(strange, KEYS, EXPECTED, "n", NOW_US)
    without = EXPECTED._replace(client_id="")
    with pytest.raises(TokenRefused, match="not for the login"):
        verify_id_token(id_token(aud=""), KEYS, without, "n", NOW_US)
