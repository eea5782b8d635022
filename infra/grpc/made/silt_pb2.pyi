from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Acks(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACKS_UNSPECIFIED: _ClassVar[Acks]
    ACKS_NONE: _ClassVar[Acks]
    ACKS_WAL: _ClassVar[Acks]
    ACKS_OBJECT: _ClassVar[Acks]
    ACKS_TABLE: _ClassVar[Acks]
    ACKS_WRITTEN: _ClassVar[Acks]

class Isolation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ISOLATION_UNSPECIFIED: _ClassVar[Isolation]
    ISOLATION_WAL: _ClassVar[Isolation]
    ISOLATION_TABLE: _ClassVar[Isolation]

class OffsetReset(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OFFSET_RESET_UNSPECIFIED: _ClassVar[OffsetReset]
    OFFSET_RESET_EARLIEST: _ClassVar[OffsetReset]
    OFFSET_RESET_LATEST: _ClassVar[OffsetReset]
    OFFSET_RESET_ERROR: _ClassVar[OffsetReset]
ACKS_UNSPECIFIED: Acks
ACKS_NONE: Acks
ACKS_WAL: Acks
ACKS_OBJECT: Acks
ACKS_TABLE: Acks
ACKS_WRITTEN: Acks
ISOLATION_UNSPECIFIED: Isolation
ISOLATION_WAL: Isolation
ISOLATION_TABLE: Isolation
OFFSET_RESET_UNSPECIFIED: OffsetReset
OFFSET_RESET_EARLIEST: OffsetReset
OFFSET_RESET_LATEST: OffsetReset
OFFSET_RESET_ERROR: OffsetReset

class Header(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class PublishRecord(_message.Message):
    __slots__ = ("key", "value", "headers", "timestamp_us", "partition", "sequence")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    timestamp_us: int
    partition: int
    sequence: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., timestamp_us: _Optional[int] = ..., partition: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("topic", "records", "arrow_stream", "acks", "timeout_ms", "partition", "idempotency_key", "producer")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ARROW_STREAM_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    records: _containers.RepeatedCompositeFieldContainer[PublishRecord]
    arrow_stream: bytes
    acks: Acks
    timeout_ms: int
    partition: int
    idempotency_key: str
    producer: Producer
    def __init__(self, topic: _Optional[str] = ..., records: _Optional[_Iterable[_Union[PublishRecord, _Mapping]]] = ..., arrow_stream: _Optional[bytes] = ..., acks: _Optional[_Union[Acks, str]] = ..., timeout_ms: _Optional[int] = ..., partition: _Optional[int] = ..., idempotency_key: _Optional[str] = ..., producer: _Optional[_Union[Producer, _Mapping]] = ...) -> None: ...

class Producer(_message.Message):
    __slots__ = ("id", "epoch", "first_sequence", "increasing")
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INCREASING_FIELD_NUMBER: _ClassVar[int]
    id: str
    epoch: int
    first_sequence: int
    increasing: bool
    def __init__(self, id: _Optional[str] = ..., epoch: _Optional[int] = ..., first_sequence: _Optional[int] = ..., increasing: _Optional[bool] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("topic", "acks", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    acks: Acks
    partitions: _containers.RepeatedCompositeFieldContainer[PublishedPartition]
    def __init__(self, topic: _Optional[str] = ..., acks: _Optional[_Union[Acks, str]] = ..., partitions: _Optional[_Iterable[_Union[PublishedPartition, _Mapping]]] = ...) -> None: ...

class PublishedPartition(_message.Message):
    __slots__ = ("partition", "first_offset", "last_offset", "count", "duplicate")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    first_offset: int
    last_offset: int
    count: int
    duplicate: bool
    def __init__(self, partition: _Optional[int] = ..., first_offset: _Optional[int] = ..., last_offset: _Optional[int] = ..., count: _Optional[int] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class FetchPosition(_message.Message):
    __slots__ = ("topic", "partition", "offset", "max_bytes", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    max_bytes: int
    topic_id: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., topic_id: _Optional[str] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("partitions", "max_records", "max_bytes", "min_bytes", "wait_ms", "isolation", "arrow")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[FetchPosition]
    max_records: int
    max_bytes: int
    min_bytes: int
    wait_ms: int
    isolation: Isolation
    arrow: bool
    def __init__(self, partitions: _Optional[_Iterable[_Union[FetchPosition, _Mapping]]] = ..., max_records: _Optional[int] = ..., max_bytes: _Optional[int] = ..., min_bytes: _Optional[int] = ..., wait_ms: _Optional[int] = ..., isolation: _Optional[_Union[Isolation, str]] = ..., arrow: _Optional[bool] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("topic", "partition", "offset", "timestamp_us", "key", "value", "headers")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    timestamp_us: int
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_us: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class FetchedPartition(_message.Message):
    __slots__ = ("topic", "partition", "next_offset", "log_start_offset", "table_offset", "high_watermark", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    next_offset: int
    log_start_offset: int
    table_offset: int
    high_watermark: int
    error: Problem
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., next_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., table_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., error: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("error_code", "detail", "retryable", "retry_after_ms")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    error_code: str
    detail: str
    retryable: str
    retry_after_ms: int
    def __init__(self, error_code: _Optional[str] = ..., detail: _Optional[str] = ..., retryable: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("partitions", "records", "arrow_stream")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ARROW_STREAM_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[FetchedPartition]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    arrow_stream: bytes
    def __init__(self, partitions: _Optional[_Iterable[_Union[FetchedPartition, _Mapping]]] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., arrow_stream: _Optional[bytes] = ...) -> None: ...

class ListOffsetsRequest(_message.Message):
    __slots__ = ("topic", "timestamp_us", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    timestamp_us: int
    topic_id: str
    def __init__(self, topic: _Optional[str] = ..., timestamp_us: _Optional[int] = ..., topic_id: _Optional[str] = ...) -> None: ...

class PartitionOffsets(_message.Message):
    __slots__ = ("partition", "log_start_offset", "table_offset", "high_watermark", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    log_start_offset: int
    table_offset: int
    high_watermark: int
    offset: int
    def __init__(self, partition: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., table_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ListOffsetsResponse(_message.Message):
    __slots__ = ("topic", "topic_id", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionOffsets]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionOffsets, _Mapping]]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "config")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ConfigValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ConfigValue, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    config: _containers.MessageMap[str, ConfigValue]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., config: _Optional[_Mapping[str, ConfigValue]] = ...) -> None: ...

class ConfigValue(_message.Message):
    __slots__ = ("number", "text")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    number: int
    text: str
    def __init__(self, number: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "topic_id", "partitions", "created_at", "table_uri", "config", "records", "bytes", "files", "offsets")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ConfigValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ConfigValue, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    TABLE_URI_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    partitions: int
    created_at: str
    table_uri: str
    config: _containers.MessageMap[str, ConfigValue]
    records: int
    bytes: int
    files: int
    offsets: _containers.RepeatedCompositeFieldContainer[PartitionOffsets]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., partitions: _Optional[int] = ..., created_at: _Optional[str] = ..., table_uri: _Optional[str] = ..., config: _Optional[_Mapping[str, ConfigValue]] = ..., records: _Optional[int] = ..., bytes: _Optional[int] = ..., files: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[PartitionOffsets, _Mapping]]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("prefix", "after", "limit")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    limit: int
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "next")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    next: str
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MemberSettings(_message.Message):
    __slots__ = ("topics", "topic_pattern", "client_id", "instance_id", "session_timeout_ms", "rebalance_timeout_ms", "auto_offset_reset")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PATTERN_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    AUTO_OFFSET_RESET_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic_pattern: str
    client_id: str
    instance_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    auto_offset_reset: OffsetReset
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., topic_pattern: _Optional[str] = ..., client_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., auto_offset_reset: _Optional[_Union[OffsetReset, str]] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("group", "member_id", "settings")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    settings: MemberSettings
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., settings: _Optional[_Union[MemberSettings, _Mapping]] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("group", "member_id", "generation", "settings", "owned", "wait_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    generation: int
    settings: MemberSettings
    owned: OwnedPartitions
    wait_ms: int
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., generation: _Optional[int] = ..., settings: _Optional[_Union[MemberSettings, _Mapping]] = ..., owned: _Optional[_Union[OwnedPartitions, _Mapping]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class OwnedPartitions(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionName]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionName, _Mapping]]] = ...) -> None: ...

class PartitionName(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class Membership(_message.Message):
    __slots__ = ("generation", "assignment", "heartbeat_interval_ms")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    assignment: Assignment
    heartbeat_interval_ms: int
    def __init__(self, generation: _Optional[int] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., heartbeat_interval_ms: _Optional[int] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[AssignedPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[AssignedPartition, _Mapping]]] = ...) -> None: ...

class AssignedPartition(_message.Message):
    __slots__ = ("topic", "partition", "topic_id", "offset", "delivered")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    topic_id: str
    offset: int
    delivered: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., topic_id: _Optional[str] = ..., offset: _Optional[int] = ..., delivered: _Optional[int] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("group", "member_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommittedOffset(_message.Message):
    __slots__ = ("topic", "partition", "offset", "metadata", "delivered", "generation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    metadata: str
    delivered: int
    generation: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., metadata: _Optional[str] = ..., delivered: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("group", "offsets", "member_id", "generation")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[CommittedOffset]
    member_id: str
    generation: int
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[CommittedOffset, _Mapping]]] = ..., member_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("start", "credit", "commit", "nack", "release")
    class Start(_message.Message):
        __slots__ = ("group", "member_id", "settings", "max_attempts")
        GROUP_FIELD_NUMBER: _ClassVar[int]
        MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
        SETTINGS_FIELD_NUMBER: _ClassVar[int]
        MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
        group: str
        member_id: str
        settings: MemberSettings
        max_attempts: int
        def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., settings: _Optional[_Union[MemberSettings, _Mapping]] = ..., max_attempts: _Optional[int] = ...) -> None: ...
    class Credit(_message.Message):
        __slots__ = ("records",)
        RECORDS_FIELD_NUMBER: _ClassVar[int]
        records: int
        def __init__(self, records: _Optional[int] = ...) -> None: ...
    class CommitOffsets(_message.Message):
        __slots__ = ("offsets",)
        OFFSETS_FIELD_NUMBER: _ClassVar[int]
        offsets: _containers.RepeatedCompositeFieldContainer[CommittedOffset]
        def __init__(self, offsets: _Optional[_Iterable[_Union[CommittedOffset, _Mapping]]] = ...) -> None: ...
    class Nack(_message.Message):
        __slots__ = ("records", "error")
        RECORDS_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        records: _containers.RepeatedCompositeFieldContainer[SubscribeRequest.NackedRecord]
        error: str
        def __init__(self, records: _Optional[_Iterable[_Union[SubscribeRequest.NackedRecord, _Mapping]]] = ..., error: _Optional[str] = ...) -> None: ...
    class NackedRecord(_message.Message):
        __slots__ = ("topic", "partition", "offset", "generation")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        GENERATION_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        offset: int
        generation: int
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...
    class Release(_message.Message):
        __slots__ = ("partitions",)
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        partitions: _containers.RepeatedCompositeFieldContainer[PartitionName]
        def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionName, _Mapping]]] = ...) -> None: ...
    START_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    start: SubscribeRequest.Start
    credit: SubscribeRequest.Credit
    commit: SubscribeRequest.CommitOffsets
    nack: SubscribeRequest.Nack
    release: SubscribeRequest.Release
    def __init__(self, start: _Optional[_Union[SubscribeRequest.Start, _Mapping]] = ..., credit: _Optional[_Union[SubscribeRequest.Credit, _Mapping]] = ..., commit: _Optional[_Union[SubscribeRequest.CommitOffsets, _Mapping]] = ..., nack: _Optional[_Union[SubscribeRequest.Nack, _Mapping]] = ..., release: _Optional[_Union[SubscribeRequest.Release, _Mapping]] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("assigned", "revoked", "lost", "records", "committed", "problem")
    class HeldPartitions(_message.Message):
        __slots__ = ("member_id", "generation", "partitions")
        MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
        GENERATION_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        member_id: str
        generation: int
        partitions: _containers.RepeatedCompositeFieldContainer[SubscribeResponse.HeldPartition]
        def __init__(self, member_id: _Optional[str] = ..., generation: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[SubscribeResponse.HeldPartition, _Mapping]]] = ...) -> None: ...
    class HeldPartition(_message.Message):
        __slots__ = ("topic", "partition", "offset")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        offset: int
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...
    class Records(_message.Message):
        __slots__ = ("records",)
        RECORDS_FIELD_NUMBER: _ClassVar[int]
        records: _containers.RepeatedCompositeFieldContainer[Record]
        def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...
    class Committed(_message.Message):
        __slots__ = ("offsets", "dead_lettered")
        OFFSETS_FIELD_NUMBER: _ClassVar[int]
        DEAD_LETTERED_FIELD_NUMBER: _ClassVar[int]
        offsets: _containers.RepeatedCompositeFieldContainer[SubscribeResponse.HeldPartition]
        dead_lettered: bool
        def __init__(self, offsets: _Optional[_Iterable[_Union[SubscribeResponse.HeldPartition, _Mapping]]] = ..., dead_lettered: _Optional[bool] = ...) -> None: ...
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    assigned: SubscribeResponse.HeldPartitions
    revoked: SubscribeResponse.HeldPartitions
    lost: SubscribeResponse.HeldPartitions
    records: SubscribeResponse.Records
    committed: SubscribeResponse.Committed
    problem: Problem
    def __init__(self, assigned: _Optional[_Union[SubscribeResponse.HeldPartitions, _Mapping]] = ..., revoked: _Optional[_Union[SubscribeResponse.HeldPartitions, _Mapping]] = ..., lost: _Optional[_Union[SubscribeResponse.HeldPartitions, _Mapping]] = ..., records: _Optional[_Union[SubscribeResponse.Records, _Mapping]] = ..., committed: _Optional[_Union[SubscribeResponse.Committed, _Mapping]] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...
