"""Clients of Kafka log in over TLS, by a password at a broker of Kafka and by a key or a token at this server."""

import json
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from access_rig import Secured, secured_server
from confluent_kafka.admin import AdminClient, NewTopic
from identity_provider import IdentityProvider
from kafka_players import CLIENTS, PARTITIONS, Client, Command, Player, rows, without_offset
from kafka_rig import WAIT_SECONDS, bootstrap_of, free_port
from tls_rig import Made, client_of

from siltlog.infra.security.keys import read_key

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]
Login = dict[str, str]


class Place(NamedTuple):
    """A server, who may do everything there, and who logs in to play."""

    bootstrap: str
    admin: Login
    login: Login


@pytest.fixture(scope="module")
def idp() -> Iterator[IdentityProvider]:
    with IdentityProvider() as idp:
        yield idp


@pytest.fixture(scope="module")
def secured(made: Made, idp: IdentityProvider, valkey_url: str) -> Iterator[Secured]:
    tls = {"tls_cert": str(made.files.certificate), "tls_key": str(made.files.key)}
    own = {"kafka_listen": f"127.0.0.1:{free_port()}", "redis_url": valkey_url, "oidc_issuer": idp.issuer}
    with secured_server(client_of(made), **tls, **own, group_initial_rebalance_delay_ms=0) as found:
        found.allow("topics", "user:ada", "topic", "t", "read", "write", pattern="prefix")
        found.allow("groups", "user:ada", "group", "read-", "read", pattern="prefix")
        yield found


@pytest.fixture(scope="module", params=["kafka", "siltlog by a key", "siltlog by a token"])
def place(request: pytest.FixtureRequest, made: Made) -> Place:
    ca = {"ca": str(made.folder / "authority.pem")}
    if request.param == "kafka":
        kafka = request.getfixturevalue("kafka")
        return Place(kafka.secured, ca | kafka.login, ca | kafka.login)
    secured, idp = (request.getfixturevalue(name) for name in ("secured", "idp"))
    token = str(secured.admin.token)
    key = read_key(token)
    assert key is not None
    own = ca | {"user": key.key_id, "password": token}
    by_token = ca | {"token": idp.token("ada")}
    return Place(bootstrap_of(secured.server), own, by_token if "token" in request.param else own)


@pytest.fixture(scope="module", params=sorted(CLIENTS.keys() - {"java-consumer"}))
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]


@pytest.fixture(scope="module")
def command(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Command:
    return client.command(tmp_path_factory.mktemp("player"))


@pytest.fixture
def start(
    command: Command, place: Place, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Login], Player]]:
    log = tmp_path_factory.mktemp("log") / "log"
    with ExitStack() as stack:
        yield lambda login: stack.enter_context(Player([*command, place.bootstrap, json.dumps(login)], log))


@pytest.fixture
def topic(place: Place) -> str:
    named = {
        "bootstrap.servers": place.bootstrap,
        "log_level": 0,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": place.admin["ca"],
        "sasl.mechanism": "PLAIN",
        "sasl.username": place.admin["user"],
        "sasl.password": place.admin["password"],
    }
    name = f"t{uuid.uuid4()}"
    admin = AdminClient(named)
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(WAIT_SECONDS)
    return name


def test_who_logs_in_publishes_and_reads(
    client: Client, place: Place, start: Callable[[Login], Player], topic: str
) -> None:
    if "token" in place.login and not client.has_tokens:
        pytest.skip("it logs in by no token that it is given")
    player, sent = start(place.login), rows(0, 20)
    player.do("produce", topic=topic, codec="none", records=sent)
    read = player.do("read", topic=topic, partitions=PARTITIONS, count=len(sent)).records
    assert sorted(map(without_offset, read)) == sorted(map(without_offset, sent))


def test_who_does_not_is_told(client: Client, place: Place, start: Callable[[Login], Player], topic: str) -> None:
    if "token" in place.login and not client.has_tokens:
        pytest.skip("it logs in by no token that it is given")
    what = "token" if "token" in place.login else "password"
    player = start(place.login | {what: place.login[what][:-2] + "xx"})
    if client.makes_topics and not client.administers_unheard:
        told = player.ask("create", topic=f"t{uuid.uuid4()}", partitions=1, config={})
    else:
        told = player.ask("read", topic=topic, partitions=PARTITIONS, count=1)
    assert re.search(client.not_logged_in, told.error), told
