"""Values from disk in jails: mapped like those from memory, and a hostile jail cannot change them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.serving.fixtures import World
from tests.support.serving.plain import Line

from cenote_proto.v1 import runtime_pb2
from cenote_worker.descriptor_store.client import DescriptorStoreClient, ensure_store
from cenote_worker.node.references import NodeReferences
from cenote_worker.serving.limits import ServerTimeouts

TAP = """
import os
from cenote_worker.transport.content import Content
kept, real = [], Content.delivered.__func__
def tap(cls, message, descriptors):
    kept.extend(map(os.dup, descriptors))
    return real(cls, message, descriptors)
Content.delivered = classmethod(tap)
"""
"""The cell owns its process: it can retain a descriptor that it is given for a moment."""

ATTACK = """
import mmap
(fd,) = kept
done = []
def attempt(what, *arguments, **named):
    try:
        what(*arguments, **named)
    except (OSError, ValueError):
        return
    done.append(what.__name__)
again = f"/proc/self/fd/{fd}"
attempt(os.pwrite, fd, b"evil" * 1000, 0)
attempt(os.ftruncate, fd, 0)
attempt(mmap.mmap, fd, 4096, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
attempt(os.fchmod, fd, 0o666)  # a jail of the platform's own user may: it leads nowhere
attempt(os.open, again, os.O_RDWR)
attempt(os.open, again, os.O_WRONLY | os.O_TRUNC)
attempt(os.truncate, again, 0)
attempt(os.link, again, "mine")
set(done) - {"fchmod"}
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    ensure_store(tmp_path / "keeper")
    descriptor_store = DescriptorStoreClient(tmp_path / "keeper")
    world = World(
        ServerTimeouts(), NodeReferences(descriptor_store, "n1", 0)
    )  # no space in memory: all of it goes to disk
    yield world
    world.close()
    descriptor_store.shut_down()


def shared(line: Line, name: str) -> str:
    answer = line.answer(line.send(share=runtime_pb2.Share(name=name)))
    return answer.shared.reference


def inject(line: Line, name: str, reference: str) -> None:
    injection = runtime_pb2.Injection(reference=reference, name=name, replace=True)
    assert line.answer(line.send(injection=injection)).reply.HasField("done")


@pytest.mark.slow
def test_a_value_from_disk_is_the_users_own(world: World) -> None:
    """Writable, and writes are private: neither another jail nor a later mapping sees them."""
    maker, user = (world.line(world.runtime(preload=("numpy",), snapshots="none")) for _ in range(2))
    assert maker.run("import numpy; data = numpy.arange(200_000)").success
    reference = shared(maker, "data")
    inject(user, "data", reference)
    assert "19999900000" == user.run("int(data.sum())").value
    assert user.run("data[:] = 0").success
    inject(user, "again", reference)
    assert "(0, 19999900000)" == user.run("(int(data.sum()), int(again.sum()))").value


@pytest.mark.slow
def test_a_jail_cannot_change_what_others_map(world: World) -> None:
    """Technique: retain the descriptor and write through it, or reopen it through `/proc`, which bypasses seals."""
    good, evil = world.line(world.runtime(snapshots="none")), world.line(world.runtime(snapshots="none"))
    assert good.run("data = b'good' * 50_000").success
    reference = shared(good, "data")
    assert evil.run(TAP).success
    inject(evil, "data", reference)
    assert "set()" == evil.run(ATTACK).value
    inject(good, "again", reference)
    assert "True" == good.run("again == data").value
