"""Runtimes that store, and states made without a jail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cenote.runtime import PythonRuntime
from cenote_proto.v1 import checkpoint_pb2
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.manifest import Manifest
from cenote_worker.checkpoints.state import State, parse_state
from cenote_worker.checkpoints.store import CheckpointStore
from cenote_worker.checkpoints.writer import CheckpointDraft, CheckpointWriter
from cenote_worker.supervisor import start
from cenote_worker.transport.chunks import cut, digest
from cenote_worker.zygote.client import ZygoteClient

LIMIT = 1 << 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test's checkpoints go."""
    return tmp_path / "store"


@pytest.fixture
def make_runtime() -> Iterator[Callable[..., PythonRuntime]]:
    """Makes runtimes, or restores them, that are closed after the test."""
    made: list[PythonRuntime] = []

    def make(
        make: Callable[..., PythonRuntime] = PythonRuntime, *args: Any, **arguments: Any
    ) -> PythonRuntime:
        arguments.setdefault("sandbox", SandboxPolicy(preload=("numpy",)))
        runtime = make(*args, **arguments)
        made.append(runtime)
        return runtime

    yield make
    for runtime in made:
        runtime.close()


def put(draft: CheckpointDraft, variables: Mapping[str, bytes], step: int = 1) -> State:
    """A state of one group per variable, whose only part is the given bytes; its chunks are in the draft."""
    message = checkpoint_pb2.State(step=step, names=variables)
    for name, content in variables.items():
        chunks = list(cut(memoryview(content)))
        for chunk in chunks:
            draft.add(chunk, dense=False)
        digests = b"".join(map(digest, chunks))
        part = checkpoint_pb2.StoredPart(size=len(content), digests=digests)
        message.groups.add(names=[name], parts=[part])
    return parse_state(message, LIMIT)


def store(writer: CheckpointWriter, label: str = "", **variables: bytes) -> Manifest:
    """One checkpoint of these variables."""
    draft = writer.begin()
    try:
        return writer.publish(draft, put(draft, variables), label)
    finally:
        draft.discard()


def writer_of(where: str | Path, name: str = "r") -> CheckpointWriter:
    """A separate writer, as another process would have."""
    return CheckpointWriter(CheckpointStore(where), name, None)


@pytest.fixture
def leave_zygotes() -> Iterator[Callable[[], list[ZygoteClient]]]:
    """Has the next jail be of another zygote, with other addresses. Returns those before, which run on. Only this
    test's zygotes end: runtimes that other tests of this process share have theirs.
    """
    nursery = start._nursery
    others, nursery._zygotes = nursery._zygotes, []
    left: list[ZygoteClient] = []

    def leave() -> list[ZygoteClient]:
        left.extend(nursery._zygotes)
        nursery._zygotes = []
        return left

    yield leave
    for zygote in leave():
        zygote.close()
    nursery._zygotes = others


@pytest.fixture
def end_zygotes(leave_zygotes: Callable[[], list[ZygoteClient]]) -> Callable[[], None]:
    """The same, and ends those before."""

    def end() -> None:
        for zygote in leave_zygotes():
            zygote.close()

    return end
