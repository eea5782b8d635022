"""The names, signatures and weight of `import siltlog`: what users hold on to."""

import inspect
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import siltlog
from siltlog import testing

ROOT = Path(__file__).parents[2]
ERRORS = {
    "SiltlogError": "Exception",
    "ConfigError": "SiltlogError",
    "Refused": "SiltlogError",
    "UnknownTopic": "Refused",
    "TopicExists": "Refused",
    "RecordTooLarge": "Refused",
    "OffsetOutOfRange": "Refused",
    "Unauthenticated": "Refused",
    "Forbidden": "Refused",
    "Fenced": "SiltlogError",
    "Unavailable": "SiltlogError",
    "OutcomeUnknown": "SiltlogError",
    "CorruptData": "SiltlogError",
    "BufferFull": "SiltlogError",
    "DeliveryFailed": "SiltlogError",
}
METHODS = {
    "Producer.send": "topic value *key *headers *timestamp *partition *on_delivery",
    "Producer.send_batch": "topic records *on_delivery",
    "Producer.flush": "timeout_ms",
    "Producer.metrics": "",
    "Producer.close": "timeout_ms",
    "Producer.__init__": "url *acks *linger_ms *batch_bytes *buffer_bytes *max_block_ms *delivery_timeout_ms "
    "*request_timeout_ms *compression *token *ca *cert *connect_timeout_ms *clock *transport",
    "AsyncProducer.__init__": "url *acks *linger_ms *batch_bytes *buffer_bytes *max_block_ms *delivery_timeout_ms "
    "*request_timeout_ms *compression *token *ca *cert *connect_timeout_ms *clock *transport",
    "AsyncProducer.send": "topic value *key *headers *timestamp *partition",
    "AsyncProducer.send_nowait": "topic value *key *headers *timestamp *partition *on_delivery",
    "AsyncProducer.send_batch": "topic records",
    "AsyncProducer.send_batch_nowait": "topic records *on_delivery",
    "AsyncProducer.flush": "timeout_ms",
    "AsyncProducer.metrics": "",
    "AsyncProducer.close": "timeout_ms",
    "Consumer.__init__": "url *group *topics *topic_pattern *assign *auto_offset_reset *auto_commit "
    "*auto_commit_interval_ms *isolation *read *stop_at *idle_timeout_ms *buffer_bytes *session_timeout_ms "
    "*rebalance_timeout_ms *max_poll_interval_ms *retry_timeout_ms *request_timeout_ms "
    "*client_id *instance_id *on_assigned *on_revoked "
    "*on_lost *token *ca *cert *connect_timeout_ms *clock *transport",
    "Consumer.poll": "max_records timeout_ms",
    "Consumer.poll_arrow": "max_records timeout_ms",
    "Consumer.commit": "what",
    "Consumer.committed": "topic partition",
    "Consumer.position": "topic partition",
    "Consumer.assignment": "",
    "Consumer.lag": "",
    "Consumer.seek": "topic partition offset",
    "Consumer.seek_to_timestamp": "topic when",
    "Consumer.seek_to_beginning": "topic",
    "Consumer.seek_to_end": "topic",
    "Consumer.pause": "*partitions",
    "Consumer.resume": "*partitions",
    "Consumer.run": "handle *max_attempts *backoff_ms *backoff_ms_max *workers",
    "Consumer.wakeup": "",
    "Consumer.close": "",
    "Admin.__init__": "url *token *ca *cert *connect_timeout_ms "
    "*retry_timeout_ms *request_timeout_ms *clock *transport",
    "Admin.create_topic": "name partitions config exist_ok",
    "Admin.topics": "prefix *sort *order",
    "Admin.topic": "name",
    "Admin.alter_topic": "name partitions config",
    "Admin.delete_topic": "name",
    "Admin.offsets": "topic timestamp",
    "Admin.delete_records": "topic partition before_offset",
    "Admin.replay_dead_letters": "topic replay_id offsets",
    "Admin.dead_letters": "topic *group *after *limit",
    "Admin.discard_dead_letters": "topic offsets *ranges *reason",
    "Admin.groups": "prefix *topic *sort *order",
    "Admin.group": "group",
    "Admin.group_offsets": "group",
    "Admin.set_group_offsets": "group offsets",
    "Admin.reset_group": "group to *topics *partitions *timestamp *offset *shift *dry_run",
    "Admin.delete_group": "group",
    "Admin.jobs": "job limit",
    "Admin.schedule": "",
    "Admin.begin_job": "job",
    "Admin.stop_job": "job run_id",
    "Admin.cluster": "",
    "Admin.nodes": "",
    "Admin.config": "",
    "Admin.change_config": "changes version",
    "Admin.drain_node": "node",
    "Admin.drain": "",
    "Admin.drain_state": "",
    "Admin.end_drain": "",
    "Admin.profile": "kind seconds",
    "Admin.remove_node": "node",
    "Admin.move_topic": "topic node",
    "Admin.abandon_topic": "topic",
    "Admin.balance": "dry_run",
    "Admin.close": "",
    "table_uri": "topic url root scheme",
}
for _name, _parameters in list(METHODS.items()):
    # Both ask the same of a server.
    if _name.startswith(("Admin.", "Consumer.")):
        METHODS[f"Async{_name}"] = _parameters
CONNECTION_DEFAULTS = {"token": None, "ca": None, "cert": None, "connect_timeout_ms": 5_000}
CONSUMER_DEFAULTS = {
    "group": None,
    "topics": None,
    "topic_pattern": None,
    "assign": None,
    "auto_offset_reset": "earliest",
    "auto_commit": True,
    "auto_commit_interval_ms": 5_000,
    "isolation": "wal",
    "read": "auto",
    "stop_at": None,
    "idle_timeout_ms": None,
    "buffer_bytes": 32 * 1024 * 1024,
    "session_timeout_ms": 45_000,
    "rebalance_timeout_ms": 60_000,
    "max_poll_interval_ms": 300_000,
    "retry_timeout_ms": 60_000,
    "request_timeout_ms": 30_000,
    "client_id": None,
    "instance_id": None,
    "on_assigned": None,
    "on_revoked": None,
    "on_lost": None,
    **CONNECTION_DEFAULTS,
}
PRODUCER_DEFAULTS = {
    name: {
        "acks": None,
        "linger_ms": linger_ms,
        "batch_bytes": 1024 * 1024,
        "buffer_bytes": 64 * 1024 * 1024,
        "max_block_ms": 60_000,
        "delivery_timeout_ms": 120_000,
        "request_timeout_ms": 15_000,
        "compression": "auto",
        **CONNECTION_DEFAULTS,
    }
    for name, linger_ms in {"Producer": 5, "AsyncProducer": 0}.items()
}
FIELDS = {
    "TopicPartition": "topic partition",
    "RecordMetadata": "topic partition offset timestamp",
    "PartitionMetadata": "topic partition first_offset last_offset count duplicate",
    "Lag": "records seconds",
    "ConsumerRecord": "topic partition offset timestamp key value headers",
}


def test_the_public_names() -> None:
    names = {
        *ERRORS,
        *FIELDS,
        "AsyncAdmin",
        "AsyncConsumer",
        "AsyncProducer",
        "Producer",
        "Consumer",
        "Admin",
        "table_uri",
        "__version__",
    }
    assert set(siltlog.__all__) == names
    assert set(dir(siltlog)) == names
    assert all(getattr(siltlog, name) is not None for name in names)
    assert siltlog.__version__ == version("siltlog")
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = siltlog.Nothing


@pytest.mark.parametrize("name", ERRORS)
def test_the_error_tree(name: str) -> None:
    assert getattr(siltlog, name).__mro__[1].__name__ == ERRORS[name]


@pytest.mark.parametrize("name", METHODS)
def test_the_signatures(name: str) -> None:
    holder, _, method = name.partition(".")
    found = getattr(siltlog, holder)
    parameters = inspect.signature(getattr(found, method) if method else found).parameters.values()
    keyword = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
    shown = [("*" if p.kind in keyword else "") + p.name for p in parameters if p.name != "self"]
    assert " ".join(shown) == METHODS[name]


MEMORY_METHODS = {
    "__init__": "*auto_create_partitions",
    "admin": "url options",
    "async_admin": "url options",
    "async_consumer": "url options",
    "async_producer": "url options",
    "async_transport": "",
    "attempts": "group topic partition offset",
    "committed": "group",
    "consumer": "url options",
    "create_topic": "name partitions config",
    "dead_letters": "topic",
    "fail": "operation error_code *times *done",
    "lag": "group",
    "producer": "url options",
    "publish": "topic value *key *headers *timestamp *partition",
    "records": "topic",
    "transport": "",
}


def test_what_tests_are_given() -> None:
    assert set(testing.__all__) == {"DeadLetter", "MemoryServer", "running_server"}
    assert testing.DeadLetter._fields == ("record", "group", "attempts", "error")
    found = inspect.getmembers(testing.MemoryServer, inspect.isfunction)
    methods = {name: method for name, method in found if name[0] != "_" or name == "__init__"}
    shown = {
        name: " ".join(
            ("*" if p.kind == inspect.Parameter.KEYWORD_ONLY else "") + p.name
            for p in inspect.signature(method).parameters.values()
            if p.name != "self"
        )
        for name, method in methods.items()
    }
    assert shown == MEMORY_METHODS


@pytest.mark.parametrize("name", ["Producer", "AsyncProducer", "Consumer", "AsyncConsumer"])
def test_the_help_tells_each_option_and_its_default(name: str) -> None:
    constructor = getattr(siltlog, name).__init__
    options = METHODS[f"{name}.__init__"].replace("*", "").split()[1:-2]
    text = inspect.getdoc(constructor) or ""
    assert [option for option in options if f"\n{option}: " not in text] == []
    defaults = {option: inspect.signature(constructor).parameters[option].default for option in options}
    assert defaults == (CONSUMER_DEFAULTS if "Consumer" in name else PRODUCER_DEFAULTS[name])


@pytest.mark.parametrize("name", ["Producer", "AsyncProducer", "Consumer", "AsyncConsumer"])
def test_an_unknown_option_is_told_with_the_nearest_one(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\(\) .*'buffer_size'; did you mean 'buffer_bytes'\?$"):
        getattr(siltlog, name)("http://127.0.0.1:1", buffer_size=1)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'zzz'$"):
        getattr(siltlog, name)("http://127.0.0.1:1", zzz=1)


@pytest.mark.parametrize("name", ["Producer", "AsyncProducer", "Consumer", "AsyncConsumer", "Admin", "AsyncAdmin"])
def test_no_public_method_is_left_out(name: str) -> None:
    methods = {f"{name}.{m}" for m, _ in inspect.getmembers(getattr(siltlog, name), inspect.isfunction) if m[0] != "_"}
    assert methods == {method for method in METHODS if method.startswith(f"{name}.") and "__" not in method}


@pytest.mark.parametrize("name", FIELDS)
def test_values_are_frozen(name: str) -> None:
    kind = getattr(siltlog, name)
    assert " ".join(kind.__struct_fields__) == FIELDS[name]
    value = kind(*[None] * len(kind.__struct_fields__))
    with pytest.raises(AttributeError):
        setattr(value, kind.__struct_fields__[0], 1)


def test_the_topic_partition_is_a_key() -> None:
    assert {siltlog.TopicPartition("a", 1): 2}[siltlog.TopicPartition("a", 1)] == 2
    assert siltlog.TopicPartition("a", 1) < siltlog.TopicPartition("b", 0)


def test_a_location_without_a_server() -> None:
    assert siltlog.table_uri("t", root="s3://bucket/lake/") == "s3://bucket/lake/topics/t"
    assert siltlog.table_uri("t", root="s3://bucket/lake", scheme="s3a") == "s3a://bucket/lake/topics/t"
    assert siltlog.table_uri("t", root="file:///lake", scheme="s3a") == "file:///lake/topics/t"
    with pytest.raises(siltlog.ConfigError):
        siltlog.table_uri("../t", root="file:///lake")


def loaded_by(code: str, separator: str = ".") -> set[str]:
    """The packages that a program imports; every module of them where they are not cut at `separator`."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    return {name.partition(separator)[0] if separator else name for name in done.stdout.split()}


def packages_of_others(code: str) -> set[str]:
    """The packages that a program imports, beside Python's own and what these look for and do without."""
    found = loaded_by(code) - loaded_by("pass") - sys.stdlib_module_names - {"cython_runtime", "typing_extensions"}
    return {name for name in found if not name.startswith("_")}


CLIENT = {"siltlog", "numpy", "pyarrow", "httptools", "msgspec", "xxhash"}


def test_importing_loads_nothing() -> None:
    """How soon a program is ready goes by what it imports, so it is this that is held; `make bench` has the times."""
    assert loaded_by("import siltlog", "") - loaded_by("pass", "") == {"siltlog"}


def test_what_a_program_names_brings_its_part_of_the_base_install_alone() -> None:
    grown_by = {
        "from siltlog import UnknownTopic": {"siltlog"},
        "from siltlog import Admin, AsyncAdmin": {"siltlog", "msgspec", "httptools"},
        "from siltlog import Producer": CLIENT,
        "from siltlog import Consumer": CLIENT - {"xxhash"},
        "import siltlog.cli.main": {"siltlog", "click"},
    }
    assert {code: packages_of_others(code) for code in grown_by} == grown_by


def test_what_is_imported_loads_what_it_needs() -> None:
    """The functions of `pyarrow.compute` take as long to import as all the rest of Arrow."""
    assert not {"numpy", "pyarrow", "rich", "click"} & loaded_by("from siltlog import Admin, TopicPartition, table_uri")
    for name in ("Producer", "Consumer"):
        unused = {"pyarrow.compute", "pandas", "asyncio", "rich", "click", "pydantic", "redis", "deltalake"}
        assert not unused & loaded_by(f"from siltlog import {name}", "")


def test_the_client_needs_no_server_package() -> None:
    server = {
        "aiohttp",
        "pydantic",
        "pydantic_settings",
        "starlette",
        "uvicorn",
        "redis",
        "deltalake",
        "boto3",
        "pyspark",
    }
    used = "import siltlog\n" + ", ".join(f"siltlog.{name}" for name in siltlog.__all__ if name != "__version__")
    assert not server & loaded_by(used)
