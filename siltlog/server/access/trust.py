"""Whom a server trusts to say who callers are, besides its own keys: as its settings name them."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError
from siltlog.infra.security.callers.certificate_rules import CertificateRules, read_rules
from siltlog.infra.security.callers.code_flow import Client, CodeFlow
from siltlog.infra.security.callers.https import Https
from siltlog.infra.security.callers.identification import Certificates
from siltlog.infra.security.callers.provider import Provider
from siltlog.infra.security.callers.tokens import Expected
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.telemetry import Logger


class Trust(NamedTuple):
    """The provider of tokens, where there is one, what gives whom a certificate stands for, and the provider's login of
    the page, where that is set up."""

    provider: Provider | None
    certificates: Certificates
    flow: CodeFlow | None


def open_trust(settings: ServerSettings, when_lost: Callable[[], None], clock: Clock, logger: Logger) -> Trust:
    """`when_lost()` is called when keys of the provider do not count any more. Raises ConfigError."""
    rules = CertificateRules(read_rules(settings.certificates))
    if rules and settings.tls_client == "off":
        raise ConfigError(
            "SILT_CERTIFICATES says whom certificates stand for, and no client is asked for one: set SILT_TLS_CLIENT"
        )
    provider, flow = _provider(settings, when_lost, clock, logger)
    return Trust(provider, rules.identity_of, flow)


def check_unused(settings: ServerSettings) -> None:
    """Raises ConfigError for settings that say whom to trust where nobody is asked who he is."""
    for name in ("oidc_issuer", "certificates"):
        if getattr(settings, name):
            raise ConfigError(f"SILT_{name.upper()} is set, and SILT_AUTH is off: nobody is asked who he is")


def _provider(
    settings: ServerSettings, when_lost: Callable[[], None], clock: Clock, logger: Logger
) -> tuple[Provider | None, CodeFlow | None]:
    if not settings.oidc_issuer:
        return None, None
    expected = Expected(
        settings.oidc_issuer,
        settings.oidc_audience,
        settings.oidc_principal_claim,
        settings.oidc_groups_claim,
        settings.oidc_client_id,
    )
    https = Https(Path(settings.oidc_ca) if settings.oidc_ca else None)
    provider = Provider(expected, https.get, when_lost, clock, logger)
    if not settings.oidc_client_id or settings.ui == "off":
        return provider, None
    client = Client(settings.oidc_client_id, settings.oidc_client_secret.get_secret_value(), settings.oidc_scopes)
    return provider, CodeFlow(provider, expected, client, https, clock)
