"""Addresses of nodes: what proves that one was said by the node itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from siltlog.infra.cluster.addresses import Addresses
from siltlog.infra.cluster.router import Member
from siltlog.infra.cluster.view import NodeEntry

KEY = b"k" * 32
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


def entry(addresses: Addresses, node: str, journal: str, url: str) -> NodeEntry:
    return NodeEntry(data_dir="d", place="p", journal=journal, url=url, proof=addresses.proof(node, journal, url))


@pytest.mark.rule("CR16")
@given(st.tuples(TEXT, TEXT, TEXT, TEXT), st.tuples(TEXT, TEXT, TEXT, TEXT))
def test_an_address_counts_for_its_node_its_journal_and_its_cluster(
    said: tuple[str, str, str, str], other: tuple[str, str, str, str]
) -> None:
    cluster, node, journal, url = said
    ours = Addresses(KEY, cluster)
    proven = entry(ours, node, journal, url)
    assert ours.member(node, proven) == Member(node, journal, url)
    cluster_b, node_b, journal_b, url_b = other
    moved = replace(proven, journal=journal_b, url=url_b)
    assert Addresses(KEY, cluster_b).counts(node_b, moved) == (said == other)
    assert not Addresses(b"o" * 32, cluster).counts(node, proven)
    assert not ours.counts(node, replace(proven, proof=""))
    assert not ours.counts(node, replace(proven, proof="\N{SNOWMAN}"))


@pytest.mark.rule("CR16")
@given(st.tuples(TEXT, TEXT, TEXT), st.tuples(TEXT, TEXT, TEXT))
def test_so_does_that_for_clients_of_kafka_which_is_no_other_address(
    said: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    node, journal, address = said
    ours = Addresses(KEY, "c")
    proof = ours.kafka_proof(node, journal, address)
    proven = NodeEntry(data_dir="d", place="p", journal=journal, url="", kafka=address, kafka_proof=proof)
    assert ours.kafka(node, proven) == address
    node_b, journal_b, address_b = other
    moved = replace(proven, journal=journal_b, kafka=address_b)
    assert ours.kafka(node_b, moved) == (address_b if said == other else "")
    assert Addresses(b"o" * 32, "c").kafka(node, proven) == ""
    assert Addresses().kafka(node, replace(proven, kafka_proof="")) == address
    # What proves one of the two addresses proves nothing of the other.
    assert not ours.counts(node, replace(proven, url=address, proof=proof))
    shown = replace(proven, kafka_proof=ours.proof(node, journal, address))
    assert ours.kafka(node, shown) == ""


def test_without_a_secret_every_address_counts() -> None:
    nobody = Addresses()
    assert nobody.proof("n", "j", "http://h") == ""
    found = NodeEntry(data_dir="d", place="p", journal="j", url="http://h", proof="anything")
    assert nobody.member("n", found) == Member("n", "j", "http://h")
