"""Checks which settings of a server go together: what is set for something that is off, or lacks what it needs."""

from contextlib import suppress
from typing import TYPE_CHECKING

from siltlog.infra import names
from siltlog.infra.settings.kinds import OFF

if TYPE_CHECKING:
    from siltlog.infra.settings.settings import ServerSettings

REDIS_ACCESS = ("redis_user", "redis_password", "redis_ca", "redis_cert", "redis_key")
OIDC = (
    *("oidc_audience", "oidc_principal_claim", "oidc_groups_claim", "oidc_client_id", "oidc_client_secret"),
    *("oidc_scopes", "oidc_ca"),
)
OF_CLUSTERS = ("zone", "lease_ms", "heartbeat_ms", "tls_peer_ca")
OF_UNITY = ("catalog_schema", "catalog_token_file")
HEARTBEATS_A_LEASE_MIN = 3
SEGMENT_BYTES_MIN = 1024 * 1024
SEGMENTS_MIN = 4
"""A log with fewer cannot recycle one while others fill."""


def check_fit(settings: "ServerSettings") -> None:
    """Raises ValueError with a sentence that names the settings that do not fit, and says why.

    What a server alone needs of its node is left to `check_node`: other commands read the same settings.
    """
    _check_shared(settings)
    _check_key(settings)
    _check_redis(settings)
    _check_metrics(settings)
    _check_kafka(settings)
    _check_oidc(settings)
    _check_catalog(settings)
    _check_segments(settings)
    _check_timeouts(settings)


def check_node(settings: "ServerSettings") -> None:
    """Raises ValueError where a server could not be a node of a cluster, or has settings that are for one."""
    if settings.heartbeat_ms * HEARTBEATS_A_LEASE_MIN > settings.lease_ms:
        raise ValueError(
            f"SILT_HEARTBEAT_MS is {settings.heartbeat_ms} and SILT_LEASE_MS {settings.lease_ms}: a lease has "
            f"{HEARTBEATS_A_LEASE_MIN} heartbeats at least, so that one that is late buries nobody"
        )
    if settings.cluster == OFF:
        given = [name for name in OF_CLUSTERS if getattr(settings, name) != type(settings).model_fields[name].default]
        if given:
            raise ValueError(
                f"{names.ENV_PREFIX}{given[0].upper()} is set, and SILT_CLUSTER is off: it is for nodes that share "
                "a root"
            )
        return
    lacking = {
        "SILT_ADVERTISE_URL": (settings.advertise_url, "the other nodes must know where to call this one"),
        "SILT_REDIS_URL": (settings.redis_url, "all nodes keep their groups in the same Redis, and none in its own"),
    }
    for name, (value, why) in lacking.items():
        if not value:
            raise ValueError(f"SILT_CLUSTER is on, and {name} is not set: {why}")
    if settings.tls_cert and not settings.advertise_url.startswith("https:"):
        raise ValueError(
            f"SILT_TLS_CERT is set, and SILT_ADVERTISE_URL is {settings.advertise_url}: what speaks TLS is called by "
            "https"
        )
    if settings.node_id.startswith("."):
        raise ValueError(f"SILT_NODE_ID is {settings.node_id!r}: in a cluster the name of a node begins with no dot")


def _check_shared(settings: "ServerSettings") -> None:
    """What every command goes by, that of the root and of the secret, is never guessed where nodes share them."""
    if settings.cluster == OFF:
        return
    if not settings.root:
        raise ValueError(
            "SILT_CLUSTER is on, and SILT_ROOT is not set: nodes share a root, and the data directory is of one node "
            "alone"
        )
    if settings.auth != OFF and not settings.secret_file:
        raise ValueError(
            "SILT_CLUSTER and SILT_AUTH are on, and SILT_SECRET_FILE is not set: all nodes need the same secret"
        )


def _check_key(settings: "ServerSettings") -> None:
    if settings.s3_kms_key_id and settings.s3_sse != "kms":
        raise ValueError("SILT_S3_KMS_KEY_ID is set, and SILT_S3_SSE is not kms: it is for that")


def _check_redis(settings: "ServerSettings") -> None:
    given = [name for name in REDIS_ACCESS if str(getattr(settings, name))]
    if given and not settings.redis_url:
        raise ValueError(f"{names.ENV_PREFIX}{given[0].upper()} is set, and SILT_REDIS_URL is not: it is for that")
    if given:
        with suppress(ModuleNotFoundError):
            settings.redis_access.checked()


def _check_metrics(settings: "ServerSettings") -> None:
    if not settings.metrics_port and settings.metrics_host != type(settings).model_fields["metrics_host"].default:
        raise ValueError("SILT_METRICS_HOST is set, and SILT_METRICS_PORT is not: it is for that")


def _check_kafka(settings: "ServerSettings") -> None:
    if settings.kafka_advertise and not settings.kafka_listen:
        raise ValueError("SILT_KAFKA_ADVERTISE is set, and SILT_KAFKA_LISTEN is not: it is for that")
    if settings.kafka_advertise.endswith(":0"):
        raise ValueError(f"SILT_KAFKA_ADVERTISE is {settings.kafka_advertise}: name the port that clients are to call")


def _check_oidc(settings: "ServerSettings") -> None:
    given = [name for name in OIDC if getattr(settings, name) != type(settings).model_fields[name].default]
    if given and not settings.oidc_issuer:
        raise ValueError(f"{names.ENV_PREFIX}{given[0].upper()} is set, and SILT_OIDC_ISSUER is not: it is for that")
    if not settings.oidc_client_id and {"oidc_client_secret", "oidc_scopes"} & set(given):
        raise ValueError(
            "SILT_OIDC_CLIENT_SECRET and SILT_OIDC_SCOPES are for the login of the page: set SILT_OIDC_CLIENT_ID"
        )
    if settings.oidc_audience == settings.oidc_client_id:
        raise ValueError(
            "SILT_OIDC_AUDIENCE and SILT_OIDC_CLIENT_ID are the same: the token that tells a page who logged in "
            "would open the log. Give this server a name of its own at the provider"
        )


def _check_catalog(settings: "ServerSettings") -> None:
    if settings.catalog_glue and settings.catalog_unity:
        raise ValueError("SILT_CATALOG_GLUE and SILT_CATALOG_UNITY are set: the schedule tells one catalog")
    if settings.catalog_glue and not settings.root.startswith("s3:"):
        raise ValueError(
            f"SILT_CATALOG_GLUE is set, and the root is {settings.root_uri}: what reads tables of AWS Glue reads S3"
        )
    if settings.catalog_region and not settings.catalog_glue:
        raise ValueError("SILT_CATALOG_REGION is set, and SILT_CATALOG_GLUE is not: it is for that")
    given = [name for name in OF_UNITY if getattr(settings, name)]
    if given and not settings.catalog_unity:
        raise ValueError(f"{names.ENV_PREFIX}{given[0].upper()} is set, and SILT_CATALOG_UNITY is not: it is for that")


def _check_segments(settings: "ServerSettings") -> None:
    size, most = settings.wal_segment_bytes, settings.wal_bytes_max // SEGMENTS_MIN
    if size and not SEGMENT_BYTES_MIN <= size <= most:
        raise ValueError(
            f"SILT_WAL_SEGMENT_BYTES is {size}: it is from {SEGMENT_BYTES_MIN} to {most}, a quarter of "
            f"SILT_WAL_BYTES_MAX ({settings.wal_bytes_max}), or 0, which takes what fits"
        )


def _check_timeouts(settings: "ServerSettings") -> None:
    for name in ("session_timeout_ms", "rebalance_timeout_ms"):
        least, most = getattr(settings, f"{name}_min"), getattr(settings, f"{name}_max")
        if least > most:
            setting = f"{names.ENV_PREFIX}{name.upper()}"
            raise ValueError(f"{setting}_MIN is {least}, and {setting}_MAX {most}: no member could ask for any")
