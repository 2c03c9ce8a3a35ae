"""How a node serves its values to other nodes, where no cluster is needed for the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cenote_security.errors import UnknownReferenceError
from cenote_worker.descriptor_store.client import DescriptorStoreClient, ensure_store
from cenote_worker.execution.results import VariableInfo
from cenote_worker.node.ray.value_copies import PIECE, ValueCopies
from cenote_worker.node.references import NodeReferences, size_in
from cenote_worker.serving.references import ReferenceOrigin
from cenote_worker.transport.content import Content

INFO = VariableInfo(name="a", type="bytes", size=1, description="some")


class Node:
    """A node that has one value of tenant `t1`."""

    def __init__(self, folder: Path, data: bytes) -> None:
        ensure_store(folder)
        self.descriptor_store = DescriptorStoreClient(folder)
        self.store = NodeReferences(self.descriptor_store, "n1", 1 << 30)
        self.copies = ValueCopies("first", self.store)
        origin = ReferenceOrigin(tenant="t1", runtime="rt_1", step=1)
        self.value = self.store.put(Content.of_bytes(data), INFO, origin, holder="h1", lease=60).id


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "keeper", bytes(PIECE) + b"end")
    yield node
    node.descriptor_store.shut_down()


def test_a_value_is_given_to_its_own_tenant(node: Node) -> None:
    """Other tenants do not learn that it exists."""
    record = node.copies.record(node.value, "t1")
    assert record is not None
    assert PIECE + 3 == size_in(record)
    assert node.copies.record(node.value, "t2") is None
    with pytest.raises(UnknownReferenceError):
        node.copies.piece(node.value, "t2", 0, "second")


def test_pieces_make_the_value(node: Node) -> None:
    """The last piece is the remainder."""
    assert bytes(PIECE) == node.copies.piece(node.value, "t1", 0, "second").view
    assert b"end" == node.copies.piece(node.value, "t1", PIECE, "second").view


def test_a_value_stays_while_another_node_fetches_it(node: Node) -> None:
    """Though its last holder releases it in between; it goes when the other node has it."""
    node.copies.piece(node.value, "t1", 0, "second")
    node.store.release(node.value, "t1", holder="h1")
    assert b"end" == node.copies.piece(node.value, "t1", PIECE, "second").view
    node.copies.fetched(node.value, "t1", "second")
    assert [] == node.descriptor_store.keys()
    node.copies.fetched(node.value, "t1", "second")
