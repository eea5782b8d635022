import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from tls_rig import LaterClock, Made, client_of, serial_of, shake_hands, shaken

from siltlog.infra.errors import ConfigError
from siltlog.infra.security.certificates import Identity, TlsFiles, load_identity, load_identity_with


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def shake(identity: Identity, client: ssl.SSLContext) -> str | None:
    return shake_hands(identity.context, client)


def test_a_client_that_knows_the_authority_comes_in(made: Made) -> None:
    ends = datetime(2040, 1, 2, 3, 4, 5, tzinfo=UTC)
    made.issue(not_after=ends)
    identity = load_identity(made.files)
    assert shake(identity, client_of(made)) == "TLSv1.3"
    assert identity.not_after == ends


def test_the_lowest_version(made: Made) -> None:
    old = client_of(made)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake(load_identity(made.files), old)
    assert shake(load_identity(made.files._replace(minimum="1.2")), old) == "TLSv1.2"


def test_weak_ciphers_of_tls_1_2_are_refused(made: Made) -> None:
    weak = client_of(made)
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("ECDHE-RSA-AES128-SHA:ECDHE-ECDSA-AES128-SHA:AES128-SHA")
    with pytest.raises(ssl.SSLError):
        shake(load_identity(made.files._replace(minimum="1.2")), weak)


def test_clients_certificates(made: Made) -> None:
    required = load_identity(made.with_clients())
    assert required.context.num_tickets == 0
    assert shake(required, client_of(made, "jobs"))
    with pytest.raises(ssl.SSLError):
        shake(required, client_of(made))
    assert shake(load_identity(made.with_clients("optional")), client_of(made))
    assert shake(load_identity(made.with_clients("optional")), client_of(made, "jobs"))
    stranger = client_of(made)
    trustme.CA().issue_cert("jobs").configure_cert(stranger)
    with pytest.raises(ssl.SSLError):
        shake(load_identity(made.with_clients("optional")), stranger)


@pytest.mark.rule("A22")
@pytest.mark.parametrize("ends", ["the certificate", "the list"])
def test_a_session_of_tls_1_2_is_not_taken_up_again_once_its_certificate_does_not_count(made: Made, ends: str) -> None:
    now = datetime.now(UTC)
    client = client_of(made)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    issued = made.authority.issue_cert("jobs", not_after=now + timedelta(hours=1 if ends == "the certificate" else 100))
    issued.configure_cert(client)
    files = made.with_clients()._replace(minimum="1.2")
    if ends == "the list":
        files = files._replace(revoked=made.revoke())
    context = load_identity(files).context
    clock = context.clock = LaterClock()
    session = shaken(context, client)[0].session
    again, _ = shaken(context, client, session)
    assert again.session_reused
    # Past the hour, and the day for which the list counts.
    clock.seconds = 3_700 if ends == "the certificate" else 90_000
    with pytest.raises(ssl.SSLError, match="has ended"):
        shaken(context, client, session)
    # Whoever shows none has nothing that could end.
    optional = load_identity(files._replace(clients="optional", revoked=None)).context
    optional.clock = clock
    nobody = client_of(made)
    nobody.maximum_version = ssl.TLSVersion.TLSv1_2
    again, _ = shaken(optional, nobody, shaken(optional, nobody)[0].session)
    assert again.session_reused


@pytest.mark.rule("A22")
def test_no_session_outlives_its_context(made: Made) -> None:
    client = client_of(made, "jobs")
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    files = made.with_clients()._replace(minimum="1.2")
    session = shaken(load_identity(files).context, client)[0].session
    again, _ = shaken(load_identity(files).context, client, session)
    assert not again.session_reused


def test_a_revoked_certificate(made: Made) -> None:
    issued = made.authority.issue_cert("jobs")
    serial = serial_of(issued)
    client = client_of(made)
    issued.configure_cert(client)
    assert shake(load_identity(made.with_clients()._replace(revoked=made.revoke(serial + 1))), client)
    with pytest.raises(ssl.SSLError):
        shake(load_identity(made.with_clients()._replace(revoked=made.revoke(serial))), client)


def test_a_key_that_does_not_fit(made: Made, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    files = made.files._replace(key=Made(other).files.key)
    with pytest.raises(ConfigError, match=r"the key in .*server\.key is not that of the certificate in .*server\.pem"):
        load_identity(files)


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_that_is_no_certificate(made: Made, content: bytes) -> None:
    made.files.certificate.write_bytes(content)
    with pytest.raises(ConfigError, match=r"server\.pem holds no certificate in PEM"):
        load_identity(made.files)


def test_a_file_that_is_no_key(made: Made) -> None:
    made.files.key.write_text("no key")
    with pytest.raises(ConfigError, match=r"server\.key is not the key of a certificate in PEM"):
        load_identity(made.files)


def test_an_encrypted_key(made: Made) -> None:
    key = serialization.load_pem_private_key(made.files.key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    kind = serialization.PrivateFormat.PKCS8
    made.files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, locked))
    with pytest.raises(ConfigError, match="is encrypted"):
        load_identity(made.files)


@pytest.mark.parametrize("field", ["certificate", "key", "client_ca", "revoked"])
def test_a_file_that_is_not_there(made: Made, field: str) -> None:
    whole = made.with_clients()._replace(revoked=made.revoke(1))
    files = TlsFiles(**{**whole._asdict(), field: made.folder / "gone.pem"})
    with pytest.raises(ConfigError, match=r"gone\.pem cannot be read: No such file or directory"):
        load_identity(files)


def test_an_authority_that_is_none(made: Made) -> None:
    files = made.with_clients()
    assert files.client_ca is not None
    files.client_ca.write_text("nothing")
    with pytest.raises(ConfigError, match=r"authority\.pem does not hold certificates of authorities in PEM"):
        load_identity(files)


def test_what_is_in_use_is_kept_without_its_files(made: Made) -> None:
    files = made.with_clients()
    pair = load_identity(files).pair
    made.files.certificate.unlink()
    made.files.key.write_text("half of a key")
    assert shake(load_identity_with(pair, files), client_of(made, "jobs"))
    assert "PRIVATE" not in repr(pair)
