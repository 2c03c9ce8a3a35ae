"""What a host process does with an assigned runtime: it takes it over, starts it, or reports it lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cenote_security.auth.capability import RuntimeKey
from cenote_security.errors import UnknownRuntimeError
from cenote_security.ids import RuntimeId
from cenote_security.policy import SandboxPolicy
from cenote_worker.descriptor_store.client import DescriptorStoreClient, ensure_store
from cenote_worker.node.assignment import KEY, Assignment
from cenote_worker.node.host import RuntimeHost
from cenote_worker.runtime.state.storage import RuntimeStorage
from cenote_worker.supervisor.start import start_ends
from cenote_worker.wire import policies


@pytest.fixture
def descriptor_store(tmp_path: Path) -> Iterator[DescriptorStoreClient]:
    ensure_store(tmp_path / "keeper")
    descriptor_store = DescriptorStoreClient(tmp_path / "keeper")
    yield descriptor_store
    descriptor_store.shut_down()


@pytest.fixture
def host(tmp_path: Path, descriptor_store: DescriptorStoreClient) -> Iterator[RuntimeHost]:
    host = RuntimeHost(
        node="n",
        folder=tmp_path / "keeper",
        listen="127.0.0.1:0",
        room=1 << 20,
        key=RuntimeKey(id="k", runtime=RuntimeId("any"), secret=b"secret"),
        start_ends=start_ends,
        elsewhere=lambda reference, tenant: None,
    )
    yield host
    host._watch.close()
    host._server.close()


def assignment(keeping: RuntimeStorage) -> Assignment:
    policy = policies.from_policy(SandboxPolicy()).SerializeToString()
    return Assignment(runtime="r", tenant="t", policy=policy, keeping=keeping)


def test_one_that_had_a_state_is_not_begun_anew(
    host: RuntimeHost, descriptor_store: DescriptorStoreClient
) -> None:
    """Its descriptor store died after its supervisor, when its node already knew it: no process has its jail any
    more. An empty one in its place would run the next cell as if nothing were missing.
    """
    lost = assignment(RuntimeStorage())
    descriptor_store.put(
        "runtime/r/jail/1", b"", []
    )  # as where the process that ended it was killed meanwhile
    with pytest.raises(UnknownRuntimeError):
        host.bind(lost, begins=False)
    assert ([], []) == (descriptor_store.keys("runtime/"), host.facts())
    host.bind(lost, begins=True)  # another of that name
    assert KEY.format("r") in descriptor_store.keys("runtime/")
    host.end("r")
    assert [] == descriptor_store.keys("runtime/")


def test_one_that_is_stored_is_there(
    host: RuntimeHost, descriptor_store: DescriptorStoreClient, tmp_path: Path
) -> None:
    """A durable one needs no descriptor store."""
    (tmp_path / "store").mkdir()  # a platform makes it
    host.bind(assignment(RuntimeStorage(store=str(tmp_path / "store"), durable=True)), begins=False)
    assert ["r"] == [fact.runtime for fact in host.facts()]
    host.end("r")


def test_a_list_lacks_what_ends_meanwhile(host: RuntimeHost) -> None:
    """Clients of another one, and a machine that is drained, are not told that this one is unknown."""
    for runtime in ("ends", "stays"):
        host.bind(replace(assignment(RuntimeStorage()), runtime=runtime), begins=True)
    host._server.remove("ends")  # as `end` does first
    assert ["stays"] == [fact.runtime for fact in host.facts()]
    host.end("ends")
    host.end("stays")
