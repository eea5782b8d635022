"""DescribeAcls, CreateAcls and DeleteAcls: refused, as by a broker of Kafka that has no access lists."""

from siltlog.infra.kafka.errors import KafkaError
from siltlog.server.kafka.call import Answer, Call

_NONE_HERE = {
    "error_code": KafkaError.SECURITY_DISABLED,
    "error_message": "this server has no access lists of Kafka: who may do what is kept by `silt access` "
    "(docs/security.md)",
}


async def describe_acls(call: Call) -> Answer:
    return _NONE_HERE


async def create_acls(call: Call) -> Answer:
    return {"results": [_NONE_HERE] * len(call.body["creations"])}


async def delete_acls(call: Call) -> Answer:
    return {"filter_results": [{**_NONE_HERE, "matching_acls": []}] * len(call.body["filters"])}
