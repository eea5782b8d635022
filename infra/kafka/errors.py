"""Kafka's error codes, and which of them an error of ours is."""

from enum import IntEnum

from siltlog.infra.errors import OutcomeUnknown, SiltlogError, Unavailable


class KafkaError(IntEnum):
    """Codes of answers, by Kafka's names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    INVALID_REGULAR_EXPRESSION = 128


CODES = {
    "unknown_topic": KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
    "unknown_partition": KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
    "topic_exists": KafkaError.TOPIC_ALREADY_EXISTS,
    "invalid_config": KafkaError.INVALID_CONFIG,
    "partition_count_changed": KafkaError.INVALID_PARTITIONS,
    "invalid_parameter": KafkaError.INVALID_REQUEST,
    "invalid_request": KafkaError.INVALID_REQUEST,
    "malformed_body": KafkaError.INVALID_REQUEST,
    "request_too_large": KafkaError.MESSAGE_TOO_LARGE,
    "record_too_large": KafkaError.MESSAGE_TOO_LARGE,
    "invalid_record": KafkaError.INVALID_RECORD,
    "unsupported_encoding": KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    "unsupported_acks": KafkaError.INVALID_REQUIRED_ACKS,
    "wal_full": KafkaError.NOT_ENOUGH_REPLICAS,
    "overloaded": KafkaError.NOT_ENOUGH_REPLICAS,
    "rate_limited": KafkaError.NOT_ENOUGH_REPLICAS,
    "disk_full": KafkaError.NOT_ENOUGH_REPLICAS,
    "topic_unavailable": KafkaError.KAFKA_STORAGE_ERROR,
    "store_denied": KafkaError.KAFKA_STORAGE_ERROR,
    "not_owner": KafkaError.NOT_LEADER_OR_FOLLOWER,
    "owner_away": KafkaError.NOT_LEADER_OR_FOLLOWER,
    "shutting_down": KafkaError.NOT_LEADER_OR_FOLLOWER,
    "ack_timeout": KafkaError.REQUEST_TIMED_OUT,
    "offset_out_of_range": KafkaError.OFFSET_OUT_OF_RANGE,
    "corrupt_data": KafkaError.CORRUPT_MESSAGE,
    "out_of_order_sequence": KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    "unknown_producer": KafkaError.UNKNOWN_PRODUCER_ID,
    "fenced_producer": KafkaError.INVALID_PRODUCER_EPOCH,
    "unknown_group": KafkaError.GROUP_ID_NOT_FOUND,
    "group_not_empty": KafkaError.NON_EMPTY_GROUP,
    "coordinator_unavailable": KafkaError.COORDINATOR_NOT_AVAILABLE,
    "unknown_member": KafkaError.UNKNOWN_MEMBER_ID,
    "fenced_member": KafkaError.FENCED_MEMBER_EPOCH,
    "unauthenticated": KafkaError.SASL_AUTHENTICATION_FAILED,
    "forbidden": KafkaError.TOPIC_AUTHORIZATION_FAILED,
    "cap_reached": KafkaError.POLICY_VIOLATION,
}
"""The code of each error of ours that a client of Kafka tells from others: those that it retries are among them."""


def kafka_error(error: SiltlogError) -> KafkaError:
    """The code that a client of Kafka gets for an error of ours.

    Where a code depends on what was asked for (a group's grant, a static member, a topic by its id), the handler knows
    it, not this table.
    """
    return CODES.get(error.error_code, KafkaError.UNKNOWN_SERVER_ERROR)


_OF_GROUPS = {
    "forbidden": KafkaError.GROUP_AUTHORIZATION_FAILED,
    "cap_reached": KafkaError.GROUP_MAX_SIZE_REACHED,
    "fenced_member": KafkaError.STALE_MEMBER_EPOCH,
    "shutting_down": KafkaError.COORDINATOR_NOT_AVAILABLE,
}


def group_error(error: SiltlogError, away: KafkaError = KafkaError.COORDINATOR_LOAD_IN_PROGRESS) -> KafkaError:
    """The code for what a group refuses its members and who commits.

    What passes by itself, such as a full disk beneath `_offsets`, is `away`: members give up at codes at which
    producers try again. By default they ask again at this node, which is as good as any.
    """
    code = _OF_GROUPS.get(error.error_code)
    if code is not None:
        return code
    return away if isinstance(error, Unavailable | OutcomeUnknown) else kafka_error(error)
