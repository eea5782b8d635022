"""The server's settings: what there are, and what follows from them. Frozen."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PrivateAttr, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from siltlog.infra import names
from siltlog.infra.limits import MEMBER_TIMEOUT_MS_MAX, MEMBER_TIMEOUT_MS_MIN
from siltlog.infra.locations import password_of
from siltlog.infra.settings.cron import Cron
from siltlog.infra.settings.fit import SEGMENT_BYTES_MIN, SEGMENTS_MIN, check_fit
from siltlog.infra.settings.kinds import (
    AbsolutePath,
    Bytes,
    CronTime,
    File,
    Hosts,
    HttpUrl,
    Issuer,
    ListenAddress,
    Location,
    Millis,
    Name,
    Networks,
    Origins,
    PathPrefix,
    RedisUrl,
    Region,
    Rules,
    Scopes,
    Words,
    Zone,
)
from siltlog.infra.settings.topic_config import PARTITIONS_MAX, REMOVED_FILES_MS_MAX, REMOVED_FILES_MS_MIN

if TYPE_CHECKING:
    from siltlog.infra.redis.access import RedisAccess

MIB = 1024 * 1024
SEGMENT_BYTES_DEFAULT = 64 * MIB
SEGMENT_BYTES_MAX = 1024 * MIB
REQUESTS_IN_FLIGHT_MIN = 4
SCHEDULE_PREFIX = "schedule_"


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
    data_dir: AbsolutePath = Path("silt-data")
    """The folder of its write-ahead log, and of everything else it keeps on this machine."""
    root: Location = ""
    """Where the tables are: file:///path or s3://bucket/prefix. Unset: the folder `lake` of the data directory."""
    redis_url: RedisUrl = ""
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
    node_id: Name = "node-0"
    """The name of this node. In a cluster, unless it is set: a random one, which the data directory keeps."""
    advertise_url: HttpUrl = ""
    """The URL by which clients reach it, where that is not the address it listens on; in a cluster, by which the other
    nodes do, too."""
    cluster: Literal["off", "on"] = "off"
    """Whether other nodes share the root with this one."""
    zone: Zone = ""
    """The zone that this node of a cluster is in: shown beside it."""
    lease_ms: Millis = Field(5_000, ge=1_000, le=600_000)
    """How long a node of a cluster may be silent before others have what it had."""
    heartbeat_ms: Millis = Field(1_500, ge=100)
    """How often a node of a cluster says that it lives: three times a lease, or more often."""
    acks: Literal["none", "written", "wal", "object", "table"] = "wal"
    """The meaning of an acknowledgement unless a topic says otherwise: with the operating system, from which a crash of
    the server takes nothing; on disk, in the object store, or in the table. object holds for topics that are made from
    then on; in a cluster they are made with it unless this is set."""
    journal_root: Location = ""
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
    burst_ms: Millis = Field(10_000, ge=0)
    """How long files wait for the end of a burst, of 16 MiB a second or more, or ten times their flush_ms where that is
    less. 0: not at all."""
    requests_budget: int = Field(0, ge=0)
    """Dollars a month that the requests of flushes may cost, at the list prices of S3: tables are as fresh as that
    buys, and no record waits for more than five minutes. 0: without limit."""
    removed_files_retention_ms: Millis = Field(REMOVED_FILES_MS_MAX, ge=REMOVED_FILES_MS_MIN, le=REMOVED_FILES_MS_MAX)
    """How long a file that was compacted or expired stays for those who read an older version of a topic's table."""
    wal_bytes_max: Bytes = Field(4096 * MIB, ge=SEGMENTS_MIN * SEGMENT_BYTES_MIN)
    """Disk the write-ahead log may use; publishing gets 503 above it."""
    wal_segment_bytes: Bytes = Field(0, ge=0, le=SEGMENT_BYTES_MAX)
    """The size of one file of the write-ahead log, from 1 MiB to a quarter of wal_bytes_max; a request may be half as
    large. 0: 64 MiB, or that quarter where it is less."""
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
    group_initial_rebalance_delay_ms: Millis = Field(500, ge=0, le=MEMBER_TIMEOUT_MS_MAX)
    """How long the first rebalance of a classic group of Kafka's clients waits for more members."""
    offsets_retention_ms: Millis = Field(7 * 86_400_000, ge=-1)
    """How long a group that nobody uses keeps its offsets; -1: for ever."""
    session_timeout_ms_min: Millis = Field(MEMBER_TIMEOUT_MS_MIN, ge=MEMBER_TIMEOUT_MS_MIN, le=MEMBER_TIMEOUT_MS_MAX)
    """The least session_timeout_ms that a member of a group may ask for."""
    session_timeout_ms_max: Millis = Field(MEMBER_TIMEOUT_MS_MAX, ge=MEMBER_TIMEOUT_MS_MIN, le=MEMBER_TIMEOUT_MS_MAX)
    """The most session_timeout_ms that a member of a group may ask for; one that asks for none has no more either."""
    rebalance_timeout_ms_min: Millis = Field(MEMBER_TIMEOUT_MS_MIN, ge=MEMBER_TIMEOUT_MS_MIN, le=MEMBER_TIMEOUT_MS_MAX)
    """The least rebalance_timeout_ms that a member of a group may ask for."""
    rebalance_timeout_ms_max: Millis = Field(MEMBER_TIMEOUT_MS_MAX, ge=MEMBER_TIMEOUT_MS_MIN, le=MEMBER_TIMEOUT_MS_MAX)
    """The most rebalance_timeout_ms that a member of a group may ask for; one that asks for none has no more either."""
    drain_ms: Millis = Field(20_000, ge=0)
    """How long a stop waits for what was begun."""
    default_partitions: int = Field(1, ge=1, le=PARTITIONS_MAX)
    """Partitions of a topic that is made by hand without saying how many."""
    auto_create_partitions: int = Field(0, ge=0, le=10_000)
    """Partitions of a topic that is created by publishing to it; 0: topics are created by hand."""
    schedule: Literal["on", "off"] = "on"
    """Whether the server runs the jobs itself, at the times of the schedule; `silt schedule` does in any case."""
    schedule_compact: CronTime = "*/10 * * * *"
    """When `silt compact` runs: a cron expression, in UTC; off: never. `compact` in [schedule] of the file."""
    schedule_retain: CronTime = "5-55/10 * * * *"
    """When `silt retain` runs."""
    schedule_vacuum: CronTime = "40 */6 * * *"
    """When `silt vacuum` runs."""
    schedule_audit: CronTime = "20 4 * * 0"
    """When `silt audit` runs."""
    schedule_catalog: CronTime = "25 * * * *"
    """When `silt catalog register` runs, where a catalog is named: catalog_glue or catalog_unity."""
    catalog_glue: str = ""
    """The database of AWS Glue that is told of the topics' tables; it is made where it is not there."""
    catalog_region: Region = ""
    """The region of that Glue. Unset: s3_region, or as AWS is told."""
    catalog_unity: HttpUrl = ""
    """The URL of the Unity Catalog that is told of the topics' tables."""
    catalog_schema: str = ""
    """The schema of that Unity Catalog, which must be there: CATALOG.SCHEMA."""
    catalog_token_file: File = ""
    """A file whose first line is the token for that Unity Catalog, and that nobody else may read."""
    cors_origins: Origins = ""
    """Origins of web pages that may call it, separated by commas."""
    hosts: Hosts = ""
    """Names it may be called by, besides loopback and the address it listens on, separated by commas."""
    auth: Literal["off", "on"] = "off"
    """Whether callers must say who they are, and may do only what they were granted."""
    secret_file: File = ""
    """The file of the cluster's secret, of 32 bytes or more: it seals the access document, and keys are hashed with it.
    Unset: the file `secret` of the data directory, made at the first start."""
    access_stale_ms: Millis = Field(3_600_000, ge=10_000)
    """How long the object store may be away before nobody but the machine's own user is let in: a key that was revoked
    elsewhere would count for ever."""
    tls_cert: File = ""
    """The file of its certificate and those between it and an authority, in PEM: it then speaks https."""
    tls_key: File = ""
    """The file of the certificate's key, in PEM, without a password."""
    tls_min: Literal["1.2", "1.3"] = "1.3"
    """The oldest version of TLS that is spoken."""
    tls_client_ca: File = ""
    """The file of the authorities, in PEM, whose certificates clients may show."""
    tls_client: Literal["off", "optional", "required"] = "off"
    """Whether clients are asked for a certificate, and whether they must have one."""
    tls_crl: File = ""
    """The file of the lists, in PEM, by which those authorities revoke certificates: one list of each."""
    tls_peer_ca: File = ""
    """The file of the authorities, in PEM, that sign the certificates of the other nodes of a cluster, and no others
    then. Unset: those that this system trusts, and what tls_cert has besides its certificate."""
    certificates: Rules = ""
    """Whom client certificates stand for: rules in JSON, or tables [[certificates]] of the file, each with `from` (uri
    or dns), `match` and `principal`. Unset: nobody."""
    oidc_issuer: Issuer = ""
    """The OpenID provider whose access tokens count: its URL, exactly as tokens name it in `iss`."""
    oidc_audience: str = Field("siltlog", min_length=1)
    """Whom a token must be for: the name in its `aud` that stands for this server."""
    oidc_principal_claim: str = Field("sub", min_length=1)
    """The claim of a token that says who has it: the caller is then user:VALUE."""
    oidc_groups_claim: str = Field("groups", min_length=1)
    """The claim that lists the groups of who has it: each stands for what is granted to group:NAME."""
    oidc_client_id: str = ""
    """The provider's name for the login of the page, which then offers it: a token for that is none for this server."""
    oidc_client_secret: SecretStr = SecretStr("")
    """The secret that the page's login has at the provider, where it has one."""
    oidc_client_secret_file: str = ""
    """A file whose first line is oidc_client_secret, and that nobody else may read."""
    oidc_scopes: Scopes = "openid"
    """What the login of the page asks the provider for, separated by spaces: openid, and what groups need there."""
    oidc_ca: File = ""
    """A PEM file of the authorities that sign the provider's certificate. Unset: those that this system trusts."""
    trusted_proxies: Networks = ""
    """Addresses and networks of proxies at which TLS ends and whose X-Forwarded-For and -Proto count, separated by
    commas."""
    path_prefix: PathPrefix = ""
    """The path that a proxy leaves before each request, such as /data/log; requests without it are answered too. Unset:
    none, as with a proxy that takes it off."""
    metrics_port: int = Field(0, ge=0, le=65_535)
    """A port of its own for /metrics, /healthz and /readyz, without TLS or authentication; 0: with the rest alone."""
    metrics_host: str = "127.0.0.1"
    """The address of that port. One that other machines reach is taken as it is, whatever SILT_INSECURE says: who can
    get there is then told the names of topics and groups, and how much is in them, but no record."""
    grpc_listen: ListenAddress = ""
    """The address and port, such as 127.0.0.1:7071, at which it speaks gRPC too (docs/grpc.md), by the rules that hold
    for HTTP: TLS where that has it, and the same callers. Needs siltlog[grpc]. Unset: it speaks none."""
    kafka_listen: ListenAddress = ""
    """The address and port, such as 127.0.0.1:9092, at which it speaks Kafka's protocol too (docs/kafka.md): with TLS
    where HTTP has it, and API keys by SASL PLAIN where authentication is on. Unset: it does not."""
    kafka_advertise: ListenAddress = ""
    """The address and port at which clients of Kafka reach it. Unset: the one that each has called first; in a cluster,
    where it listens, or the host of SILT_ADVERTISE_URL where that is every address."""
    metrics_history: Literal["off", "ring", "topic"] = "topic"
    """What `GET /v1/metrics/history` tells of: nothing; what is in memory, 20 MB at most, since the start; or that and
    what the topic _metrics has of 30 days, to which it is written each minute."""
    ui: Literal["on", "read", "off"] = "on"
    """The page at `/ui/`: there, there and only showing (what changes something is refused by its login), or none."""
    tails_max: int = Field(10_000, ge=0)
    """How many may follow topics by a tail or a WebSocket at once; members of groups are not counted."""
    ui_viewers_max: int = Field(50, ge=0)
    """How many may watch the server by `GET /v1/events` at once."""
    insecure: Words = ""
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
    """The requests that have a line in the log: none; those refused or failed; what took over a second as well, without
    the time it was told to wait; or each."""
    s3_endpoint: HttpUrl = ""
    """The S3 server, where it is not Amazon's."""
    s3_region: Region = ""
    """The region of the bucket."""
    s3_sse: Literal["bucket", "s3", "kms"] = "bucket"
    """How S3 encrypts what is written: as the bucket says, with S3's own keys, or with a key of KMS."""
    s3_kms_key_id: str = ""
    """The key of KMS, by its ARN, for s3_sse = kms. Unset: the account's own key for S3."""
    _segment_bytes: int = PrivateAttr(0)

    @model_validator(mode="after")
    def _fits(self) -> "ServerSettings":
        check_fit(self)
        return self

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
        fitting = min(max(self.wal_bytes_max // SEGMENTS_MIN, SEGMENT_BYTES_MIN), SEGMENT_BYTES_DEFAULT)
        return self._segment_bytes or self.wal_segment_bytes or fitting

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
        """The jobs of the schedule, without those that are off: that of catalogs is where none is named."""
        given = {name: getattr(self, name) for name in type(self).model_fields if name.startswith(SCHEDULE_PREFIX)}
        if not (self.catalog_glue or self.catalog_unity):
            del given["schedule_catalog"]
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
