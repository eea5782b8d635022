"""The server's settings: what there are, what each may be, and what goes with what. Frozen."""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from siltlog.infra import names
from siltlog.infra.locations import (
    http_url,
    named_hosts,
    networks,
    page_origins,
    password_of,
    redis_url,
    region_name,
    root_parts,
)
from siltlog.infra.security.exposure import insecure_words
from siltlog.infra.settings.cron import Cron
from siltlog.infra.settings.topic_config import REMOVED_FILES_MS_MAX, REMOVED_FILES_MS_MIN
from siltlog.infra.settings.units import duration_ms, size_bytes

if TYPE_CHECKING:
    from siltlog.infra.redis.access import RedisAccess

MIB = 1024 * 1024
SEGMENT_BYTES_MAX = 64 * MIB
SEGMENT_BYTES_MIN = MIB
SEGMENTS_MIN = 4
REQUESTS_IN_FLIGHT_MIN = 4
SCHEDULE_PREFIX = "schedule_"
REDIS_ACCESS = ("redis_user", "redis_password", "redis_ca", "redis_cert", "redis_key")
OIDC = ("oidc_audience", "oidc_principal_claim", "oidc_groups_claim", "oidc_client_id", "oidc_ca")
OF_CLUSTERS = ("zone", "lease_ms", "heartbeat_ms", "tls_peer_ca")
HEARTBEATS_A_LEASE_MIN = 3
OFF = "off"
"""Instead of a cron expression: an empty variable of the environment counts as unset."""


def _with_unit(parse: Callable[[str], int]) -> BeforeValidator:
    """Takes an amount with a unit too; what has no letter is left to pydantic."""

    def number(value: Any) -> Any:
        return parse(value) if isinstance(value, str) and any(map(str.isalpha, value)) else value

    return BeforeValidator(number)


Millis = Annotated[int, _with_unit(duration_ms)]
Bytes = Annotated[int, _with_unit(size_bytes)]


class ServerSettings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=names.ENV_PREFIX,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )

    host: str = "127.0.0.1"
    """The address it listens on."""
    port: int = Field(7070, ge=0, le=65_535)
    """The port it listens on; 0 takes a free one."""
    data_dir: Path = Path("silt-data")
    """The folder of its write-ahead log, and of everything else it keeps on this machine."""
    root: str = ""
    """Where the tables are: file:///path or s3://bucket/prefix. Unset: the folder `lake` of the data directory."""
    redis_url: str = ""
    """The Redis or Valkey, or any node of a Redis Cluster, that keeps consumer groups. Unset: one of its own. With TLS:
    rediss://host:port. A password belongs in redis_password_file."""
    redis_user: str = ""
    """The user that it signs in to Redis as."""
    redis_password: SecretStr = SecretStr("")
    """The password of that user, or that of Redis where users have none."""
    redis_password_file: str = ""
    """A file whose first line is redis_password, and that nobody else may read."""
    redis_ca: str = ""
    """A PEM file of the authorities that sign Redis's certificate. Unset: those that this system trusts."""
    redis_cert: str = ""
    """A PEM file of the certificate to show Redis, with those between it and its authority."""
    redis_key: str = ""
    """A PEM file of the private key of redis_cert, where that file does not have it too."""
    node_id: str = "node-0"
    """The name of this node. In a cluster, unless it is set: a random one, which the data directory keeps."""
    advertise_url: str = ""
    """The URL by which clients reach it, where that is not the address it listens on; in a cluster, by which the other
    nodes do, too."""
    cluster: Literal["off", "on"] = "off"
    """Whether other nodes share the root with this one."""
    zone: str = ""
    """The zone that this node of a cluster is in: shown beside it."""
    lease_ms: Millis = Field(5_000, ge=1_000, le=600_000)
    """How long a node of a cluster may be silent before others have what it had."""
    heartbeat_ms: Millis = Field(1_500, ge=100)
    """How often a node of a cluster says that it lives: three times a lease, or more often."""
    acks: Literal["none", "wal", "object", "table"] = "wal"
    """The meaning of an acknowledgement unless a topic says otherwise: on disk, in the object store, or in the table.
    object holds for topics that are made from then on; in a cluster they are made with it unless this is set."""
    journal_root: str = ""
    """Where what topics with acks=object were sent goes first, if not to the root: another bucket, or folder. All nodes
    of a cluster have the same."""
    object_interval_ms: Millis = Field(-1, ge=-1)
    """How often what topics with acks=object were sent goes to the object store. -1: every 200 ms on S3, at once on a
    local root."""
    flush_ms: Millis = Field(1_000, ge=1)
    """How long a record may wait for its table."""
    flush_bytes: Bytes = Field(16 * MIB, ge=1)
    """How many bytes of a topic may wait for its table."""
    flush_files_per_hour: int = Field(3_600, ge=-1)
    """How many small files a topic may make; past that partitions with little wait longer, up to five minutes.
    -1: without limit."""
    requests_budget: int = Field(0, ge=0)
    """Dollars a month that the requests of flushes may cost, at the list prices of S3: tables are as fresh as that
    buys, and no record waits for more than five minutes. 0: without limit."""
    removed_files_retention_ms: Millis = Field(REMOVED_FILES_MS_MAX, ge=REMOVED_FILES_MS_MIN, le=REMOVED_FILES_MS_MAX)
    """How long a file that was compacted or expired stays for those who read an older version of a topic's table."""
    wal_bytes_max: Bytes = Field(4096 * MIB, ge=SEGMENTS_MIN * SEGMENT_BYTES_MIN)
    """Disk the write-ahead log may use; publishing gets 503 above it."""
    head_bytes_max: Bytes = Field(256 * MIB, ge=MIB)
    """Memory for the newest records."""
    request_bytes_max: Bytes = Field(32 * MIB, ge=1024)
    """The largest request body."""
    record_bytes_max: Bytes = Field(8 * MIB, ge=1)
    """The largest record."""
    connections_max: int = Field(10_000, ge=1)
    """How many connections are served at once."""
    connections_per_ip_max: int = Field(0, ge=0)
    """How many connections of one address are served at once, but for trusted proxies; 0: any number."""
    request_timeout_ms: Millis = Field(30_000, ge=100)
    """How long the body of a request may take to arrive."""
    offsets_snapshot_ms: Millis = Field(5_000, ge=50)
    """How often what groups committed is kept beside Redis too: what a lost Redis may cost in repeated records."""
    offsets_retention_ms: Millis = Field(7 * 86_400_000, ge=-1)
    """How long a group that nobody uses keeps its offsets; -1: for ever."""
    drain_ms: Millis = Field(20_000, ge=0)
    """How long a stop waits for what was begun."""
    auto_create_partitions: int = Field(0, ge=0, le=10_000)
    """Partitions of a topic that is created by publishing to it; 0: topics are created by hand."""
    schedule: Literal["on", "off"] = "on"
    """Whether the server runs the jobs itself, at the times of the schedule; `silt schedule` does in any case."""
    schedule_compact: str = "*/10 * * * *"
    """When `silt compact` runs: a cron expression, in UTC; off: never. `compact` in [schedule] of the file."""
    schedule_retain: str = "5-55/10 * * * *"
    """When `silt retain` runs."""
    schedule_vacuum: str = "40 */6 * * *"
    """When `silt vacuum` runs."""
    schedule_audit: str = "20 4 * * 0"
    """When `silt audit` runs."""
    cors_origins: str = ""
    """Origins of web pages that may call it, separated by commas."""
    hosts: str = ""
    """Names it may be called by, besides loopback and the address it listens on, separated by commas."""
    auth: Literal["off", "on"] = "off"
    """Whether callers must say who they are, and may do only what they were granted."""
    secret_file: str = ""
    """The file of the cluster's secret, of 32 bytes or more: it seals the access document, and keys are hashed with it.
    Unset: the file `secret` of the data directory, made at the first start."""
    access_stale_ms: Millis = Field(3_600_000, ge=10_000)
    """How long the object store may be away before nobody but the machine's own user is let in: a key that was revoked
    elsewhere would count for ever."""
    tls_cert: str = ""
    """The file of its certificate and those between it and an authority, in PEM: it then speaks https."""
    tls_key: str = ""
    """The file of the certificate's key, in PEM, without a password."""
    tls_min: Literal["1.2", "1.3"] = "1.3"
    """The oldest version of TLS that is spoken."""
    tls_client_ca: str = ""
    """The file of the authorities, in PEM, whose certificates clients may show."""
    tls_client: Literal["off", "optional", "required"] = "off"
    """Whether clients are asked for a certificate, and whether they must have one."""
    tls_crl: str = ""
    """The file of the lists, in PEM, by which those authorities revoke certificates: one list of each."""
    tls_peer_ca: str = ""
    """The file of the authorities, in PEM, that sign the certificates of the other nodes of a cluster, and no others
    then. Unset: those that this system trusts, and what tls_cert has besides its certificate."""
    certificates: str = ""
    """Whom client certificates stand for: rules in JSON, or tables [[certificates]] of the file, each with `from` (uri
    or dns), `match` and `principal`. Unset: nobody."""
    oidc_issuer: str = ""
    """The OpenID provider whose access tokens count: its URL, exactly as tokens name it in `iss`."""
    oidc_audience: str = Field("siltlog", min_length=1)
    """Whom a token must be for: the name in its `aud` that stands for this server."""
    oidc_principal_claim: str = Field("sub", min_length=1)
    """The claim of a token that says who has it: the caller is then user:VALUE."""
    oidc_groups_claim: str = Field("groups", min_length=1)
    """The claim that lists the groups of who has it: each stands for what is granted to group:NAME."""
    oidc_client_id: str = ""
    """The provider's name for the login of a page: a token for that is none for this server."""
    oidc_ca: str = ""
    """A PEM file of the authorities that sign the provider's certificate. Unset: those that this system trusts."""
    trusted_proxies: str = ""
    """Addresses and networks of proxies at which TLS ends and whose X-Forwarded-For and -Proto count, separated by
    commas."""
    metrics_port: int = Field(0, ge=0, le=65_535)
    """A port of its own for /metrics, /healthz and /readyz, without TLS or authentication; 0: with the rest alone."""
    metrics_host: str = "127.0.0.1"
    """The address of that port. One that other machines reach is taken as it is, whatever SILT_INSECURE says: who can
    get there is then told the names of topics and groups, and how much is in them, but no record."""
    metrics_history: Literal["off", "ring", "topic"] = "topic"
    """What `GET /v1/metrics/history` tells of: nothing; what is in memory, 20 MB at most, since the start; or that and
    what the topic _metrics has of 30 days, to which it is written each minute."""
    ui: Literal["on", "off"] = "on"
    """Whether there is a page at `/ui/`."""
    ui_viewers_max: int = Field(50, ge=0)
    """How many may watch the server by `GET /v1/events` at once."""
    insecure: str = ""
    """What a server that other machines reach may do without: no-tls, no-auth, or both, separated by a comma."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important log line that is written."""
    log_format: Literal["console", "json"] = "console"
    """Log lines for people or for programs."""
    debug: Literal["off", "on"] = "off"
    """Whether administrators may have it profiled (`silt profile`)."""
    traces: Literal["off", "on"] = "off"
    """Whether it tells a collector of OpenTelemetry what it does for a request (docs/tracing.md), as the variables
    OTEL_* say: to http://localhost:4318, one request in a hundred, unless they say otherwise. Needs siltlog[otel]."""
    access_log: Literal["off", "errors", "slow", "all"] = "errors"
    """Which requests have a line in the log: none; those that were refused or failed; what took over a second, without
    the time it was told to wait, as well; or each."""
    s3_endpoint: str = ""
    """The S3 server, where it is not Amazon's."""
    s3_region: str = ""
    """The region of the bucket."""
    s3_sse: Literal["bucket", "s3", "kms"] = "bucket"
    """How S3 encrypts what is written: as the bucket says, with S3's own keys, or with a key of KMS."""
    s3_kms_key_id: str = ""
    """The key of KMS, by its ARN, for s3_sse = kms. Unset: the account's own key for S3."""
    _segment_bytes: int = PrivateAttr(0)

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("schedule_compact", "schedule_retain", "schedule_vacuum", "schedule_audit")
    @classmethod
    def _cron(cls, value: str) -> str:
        if value in ("", OFF):
            return ""
        Cron(value)
        return value

    @field_validator("node_id")
    @classmethod
    def _named(cls, value: str) -> str:
        problem = names.name_problem(value)
        if problem is not None:
            raise ValueError(problem)
        return value

    @field_validator("zone")
    @classmethod
    def _zone(cls, value: str) -> str:
        problem = names.name_problem(value) if value else None
        if problem is not None:
            raise ValueError(problem)
        return value

    @model_validator(mode="after")
    def _cluster_fits(self) -> "ServerSettings":
        if self.heartbeat_ms * HEARTBEATS_A_LEASE_MIN > self.lease_ms:
            raise ValueError(
                f"SILT_HEARTBEAT_MS is {self.heartbeat_ms} and SILT_LEASE_MS {self.lease_ms}: a lease has "
                f"{HEARTBEATS_A_LEASE_MIN} heartbeats at least, so that one that is late buries nobody"
            )
        if self.cluster == OFF:
            given = [name for name in OF_CLUSTERS if getattr(self, name) != type(self).model_fields[name].default]
            if given:
                raise ValueError(
                    f"{names.ENV_PREFIX}{given[0].upper()} is set, and SILT_CLUSTER is off: it is for nodes that share "
                    "a root"
                )
            return self
        lacking = {
            "SILT_ROOT": (self.root, "nodes share a root, and the data directory is of one node alone"),
            "SILT_ADVERTISE_URL": (self.advertise_url, "the other nodes must know where to call this one"),
            "SILT_REDIS_URL": (self.redis_url, "all nodes keep their groups in the same Redis, and none in its own"),
        }
        for name, (value, why) in lacking.items():
            if not value:
                raise ValueError(f"SILT_CLUSTER is on, and {name} is not set: {why}")
        if self.auth != OFF and not self.secret_file:
            raise ValueError(
                "SILT_CLUSTER and SILT_AUTH are on, and SILT_SECRET_FILE is not set: all nodes need the same secret"
            )
        if self.tls_cert and not self.advertise_url.startswith("https:"):
            raise ValueError(
                f"SILT_TLS_CERT is set, and SILT_ADVERTISE_URL is {self.advertise_url}: what speaks TLS is called by "
                "https"
            )
        if self.node_id.startswith("."):
            raise ValueError(f"SILT_NODE_ID is {self.node_id!r}: in a cluster the name of a node begins with no dot")
        return self

    @field_validator("root", "journal_root")
    @classmethod
    def _location(cls, value: str) -> str:
        value = value.rstrip("/")
        if value:
            root_parts(value)
        return value

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, value: str) -> str:
        if value:
            redis_url(value)
            with suppress(ModuleNotFoundError):  # who lacks the server's packages connects to no Redis either
                from siltlog.infra.redis.access import RedisAccess

                RedisAccess(value).checked()
        return value

    @model_validator(mode="after")
    def _key_fits(self) -> "ServerSettings":
        if self.s3_kms_key_id and self.s3_sse != "kms":
            raise ValueError("SILT_S3_KMS_KEY_ID is set, and SILT_S3_SSE is not kms: it is for that")
        return self

    @model_validator(mode="after")
    def _redis_fits(self) -> "ServerSettings":
        given = [name for name in REDIS_ACCESS if str(getattr(self, name))]
        if given and not self.redis_url:
            raise ValueError(f"{names.ENV_PREFIX}{given[0].upper()} is set, and SILT_REDIS_URL is not: it is for that")
        if given:
            with suppress(ModuleNotFoundError):
                self.redis_access.checked()
        return self

    @model_validator(mode="after")
    def _metrics_fit(self) -> "ServerSettings":
        if not self.metrics_port and self.metrics_host != type(self).model_fields["metrics_host"].default:
            raise ValueError("SILT_METRICS_HOST is set, and SILT_METRICS_PORT is not: it is for that")
        return self

    @field_validator("s3_endpoint", "advertise_url")
    @classmethod
    def _url(cls, value: str) -> str:
        if value:
            http_url(value)
        return value

    @field_validator("s3_region")
    @classmethod
    def _region(cls, value: str) -> str:
        if value:
            region_name(value)
        return value

    @field_validator("certificates", mode="before")
    @classmethod
    def _rules(cls, value: Any) -> Any:
        """Takes the tables of a file as well: as JSON, as anybody writes them elsewhere."""
        text = json.dumps(value) if isinstance(value, list) else value
        if isinstance(text, str) and text:
            from siltlog.infra.security.callers.certificate_rules import read_rules

            read_rules(text)
        return text

    @field_validator("oidc_issuer")
    @classmethod
    def _issuer(cls, value: str) -> str:
        if value:
            from siltlog.infra.security.callers.https import checked_url

            if checked_url(value).query:
                raise ValueError("an issuer has no query")
        return value

    @model_validator(mode="after")
    def _oidc_fits(self) -> "ServerSettings":
        given = [name for name in OIDC if getattr(self, name) != type(self).model_fields[name].default]
        if given and not self.oidc_issuer:
            raise ValueError(
                f"{names.ENV_PREFIX}{given[0].upper()} is set, and SILT_OIDC_ISSUER is not: it is for that"
            )
        if self.oidc_audience == self.oidc_client_id:
            raise ValueError(
                "SILT_OIDC_AUDIENCE and SILT_OIDC_CLIENT_ID are the same: the token that tells a page who logged in "
                "would open the log. Give this server a name of its own at the provider"
            )
        return self

    @field_validator("oidc_ca", "secret_file", "tls_cert", "tls_key", "tls_client_ca", "tls_crl", "tls_peer_ca")
    @classmethod
    def _file(cls, value: str) -> str:
        return str(Path(value).expanduser().absolute()) if value else ""

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: str) -> str:
        networks(value)
        return value

    @field_validator("insecure")
    @classmethod
    def _words(cls, value: str) -> str:
        insecure_words(value)
        return value

    @field_validator("hosts")
    @classmethod
    def _hosts(cls, value: str) -> str:
        named_hosts(value)
        return value

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, value: str) -> str:
        page_origins(value)
        return value

    @property
    def redis_access(self) -> "RedisAccess":
        """How it reaches its Redis, where one is named."""
        from siltlog.infra.redis.access import RedisAccess

        return RedisAccess(
            self.redis_url,
            user=self.redis_user,
            password=self.redis_password.get_secret_value(),
            ca=self.redis_ca,
            cert=self.redis_cert,
            key=self.redis_key,
        )

    def s3_options(self) -> dict[str, Any]:
        """The keywords of `open_store`."""
        return {
            "s3_endpoint": self.s3_endpoint,
            "s3_region": self.s3_region,
            "s3_sse": self.s3_sse,
            "s3_kms_key_id": self.s3_kms_key_id,
        }

    def secret_values(self) -> list[str]:
        """What must never be told, in plain text, of every setting that has some."""
        given = [getattr(self, name).get_secret_value() for name in SECRETS]
        return [value for value in (*given, password_of(self.redis_url)) if value]

    def changed(self, values: Mapping[str, Any], given: Collection[str]) -> "ServerSettings":
        """The settings of a server that runs with these, and goes on with other `values` of some. All were checked;
        those `given` are not as they are by default. Segments of the log stay as large as they are."""
        before = {name: getattr(self, name) for name in type(self).model_fields}
        made = type(self).model_construct(_fields_set=set(given), **{**before, **values})
        made._segment_bytes = self.segment_bytes
        return made

    @property
    def segment_bytes(self) -> int:
        """Size of one WAL file: a small budget still has several, so that one can be recycled while others fill."""
        return self._segment_bytes or min(max(self.wal_bytes_max // SEGMENTS_MIN, SEGMENT_BYTES_MIN), SEGMENT_BYTES_MAX)

    @property
    def request_bytes(self) -> int:
        """The largest request that is taken: it must fit in half a segment, whatever was asked for."""
        return min(self.request_bytes_max, self.segment_bytes // 2)

    @property
    def in_flight_bytes_max(self) -> int:
        """Memory for all requests under way: as much as for the newest records, and enough for a few of the largest."""
        return max(self.head_bytes_max, REQUESTS_IN_FLIGHT_MIN * self.request_bytes)

    @property
    def root_uri(self) -> str:
        return self.root or (self.data_dir / names.LAKE_FOLDER).as_uri()

    @property
    def journal_root_uri(self) -> str:
        """Where journals are; the root unless another place is set."""
        return self.journal_root or self.root_uri

    def crons(self) -> dict[str, Cron]:
        """The jobs of the schedule, without those that are off."""
        given = {name: getattr(self, name) for name in type(self).model_fields if name.startswith(SCHEDULE_PREFIX)}
        return {name.removeprefix(SCHEDULE_PREFIX): Cron(value) for name, value in given.items() if value}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Everything arrives through `load`, which knows where each value came from."""
        return (init_settings,)


SECRETS = tuple(name for name, field in ServerSettings.model_fields.items() if field.annotation is SecretStr)
"""The settings that are secrets: never flags, never shown, each with another that names a file of it."""
