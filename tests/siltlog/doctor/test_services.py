"""What is found of the services beside a server."""

from siltlog.doctor.services import identity_provider
from siltlog.infra.settings.settings import ServerSettings
from tests.rigs.identity_provider import IdentityProvider


def test_an_identity_provider_that_answers_and_one_that_does_not() -> None:
    with IdentityProvider() as idp:
        found = identity_provider(ServerSettings(oidc_issuer=idp.issuer))
        assert (found.state, found.detail) == ("ok", f"{idp.issuer}; keys that tokens may be signed with: 1")
        # The provider says of itself that it is called otherwise.
        other = idp.issuer.replace("127.0.0.1", "localhost")
        assert "it must be the very same" in identity_provider(ServerSettings(oidc_issuer=other + "/")).detail
        idp.stop()
        away = identity_provider(ServerSettings(oidc_issuer=idp.issuer))
        assert away.state == "wrong" and idp.issuer in away.detail
        assert away.mend == f"curl {idp.issuer}/.well-known/openid-configuration"
        idp.resume()
