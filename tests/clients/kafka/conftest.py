"""A broker of Kafka and a server of this repository, for all that a worker plays with them."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from kafka_rig import free_port, served
from kafka_tools import kafka_broker
from tls_rig import Made

from siltlog.infra.errors import ConfigError

USER, PASSWORD = "ada", "her secret"
LIKE_OURS = (
    "auto.create.topics.enable=false",
    "group.consumer.min.heartbeat.interval.ms=1000",
    "group.consumer.heartbeat.interval.ms=1000",
)


class Kafka(NamedTuple):
    """Where a broker listens, and where it wants a login over TLS, and which."""

    bootstrap: str
    secured: str
    login: dict[str, str]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The certificates of both, and whoever signed them."""
    found = Made(tmp_path_factory.mktemp("tls"))
    found.with_clients()
    return found


def listener_of(made: Made) -> list[str]:
    key = load_pem_private_key(made.files.key.read_bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    whole = made.folder / "kafka.pem"
    whole.write_bytes(pem + made.files.certificate.read_bytes())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": whole,
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'{module} required user_{USER}="{PASSWORD}";',
    }
    return [f"listener.name.sasl_ssl.{name}={value}" for name, value in settings.items()]


@pytest.fixture(scope="session")
def kafka(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    secured = f"127.0.0.1:{free_port()}"
    settings = (*LIKE_OURS, *listener_of(made))
    try:
        with kafka_broker(tmp_path_factory.mktemp("kafka"), *settings, also=[f"SASL_SSL://{secured}"]) as bootstrap:
            yield Kafka(bootstrap, secured, {"user": USER, "password": PASSWORD})
    except ConfigError as error:
        pytest.skip(f"there is no broker of Kafka: {error}")


@pytest.fixture(scope="session")
def siltlog(valkey_url: str) -> Iterator[str]:
    with served(redis_url=valkey_url, group_initial_rebalance_delay_ms=0, flush_ms=200) as (_, bootstrap, _):
        yield bootstrap


@pytest.fixture(scope="module", params=["kafka", "siltlog"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    there: Kafka | str = request.getfixturevalue(request.param)
    return there if isinstance(there, str) else there.bootstrap
