"""The folder of a node: taken over by the raylet that starts next to it when its own has died."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.descriptor_store.client import DescriptorStoreClient, ensure_store
from cenote_worker.node.machine import Carrier, DrainMark, clear, node_of, settle, vacate


class Raylet:
    """A process that stands for a raylet, as the agent of that raylet would describe it."""

    def __init__(self, name: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        mine = Carrier.of_this_process(name)
        began = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        self.carrier = Carrier(raylet=name, pid=self.process.pid, began=began, space=mine.space)

    def die(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def raylets() -> Iterator[tuple[Raylet, Raylet, Raylet]]:
    three = Raylet("a" * 16), Raylet("b" * 16), Raylet("c" * 16)
    yield three
    for raylet in three:
        raylet.die()
        raylet.process.communicate()


def test_a_folder_each(tmp_path: Path, raylets: tuple[Raylet, Raylet, Raylet]) -> None:
    """Raylets that live at the same time do not share a folder; each finds its own again."""
    one, two, _ = raylets
    homes = [settle(tmp_path / "root", raylet.carrier) for raylet in (one, two)]
    assert ["a" * 8, "b" * 8] == [node_of(home) for home in homes]
    assert homes == [settle(tmp_path / "root", raylet.carrier) for raylet in (one, two)]


def test_what_a_dead_raylet_carried_is_carried_on(
    tmp_path: Path, raylets: tuple[Raylet, Raylet, Raylet]
) -> None:
    """The next raylet takes it over, under the node's old name, as long as its descriptor store has any content."""
    one, two, three = raylets
    home = settle(tmp_path / "root", one.carrier)
    ensure_store(home)
    try:
        one.die()
        assert home == settle(tmp_path / "root", two.carrier)
        assert "c" * 8 == node_of(settle(tmp_path / "root", three.carrier))
    finally:
        DescriptorStoreClient(home).shut_down()


def test_one_that_cannot_be_seen_may_live(tmp_path: Path, raylets: tuple[Raylet, Raylet, Raylet]) -> None:
    """A folder that containers share: the pid of another namespace says nothing here."""
    one, two, _ = raylets
    home = tmp_path / "root" / "node-elsewhere"
    home.mkdir(parents=True)
    home.parent.chmod(0o700)
    Carrier(raylet="elsewhere", pid=one.carrier.pid, began="0", space="pid:[1]").write(home)
    assert home != settle(tmp_path / "root", two.carrier)
    clear(tmp_path / "root")
    assert home.exists()


def test_the_end_takes_what_others_have_left(tmp_path: Path, raylets: tuple[Raylet, Raylet, Raylet]) -> None:
    """Their descriptor stores too, and their jails with them; the last raylet that leaves removes the root."""
    one, two, three = raylets
    root = tmp_path / "root"
    dead, living, last = (settle(root, raylet.carrier) for raylet in (one, two, three))
    ensure_store(dead)
    one.die()
    clear(root)
    vacate(last, with_root=True)
    assert [living.name] == [path.name for path in root.glob("node-*")]
    vacate(living, with_root=True)
    assert not root.exists()


def test_a_root_that_others_may_enter_is_refused(
    tmp_path: Path, raylets: tuple[Raylet, Raylet, Raylet]
) -> None:
    """It is in a folder where any user may create one first."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root").chmod(0o755)
    with pytest.raises(UsageError, match="0700"):
        settle(tmp_path / "root", raylets[0].carrier)


def test_a_node_is_not_drained_at_first(tmp_path: Path) -> None:
    assert not DrainMark(tmp_path).is_set


def test_an_agent_that_is_started_again_finds_it(tmp_path: Path) -> None:
    Carrier.of_this_process("one").write(tmp_path)
    DrainMark(tmp_path).set(True)
    assert DrainMark(tmp_path).is_set


def test_the_next_raylet_takes_runtimes(tmp_path: Path) -> None:
    Carrier.of_this_process("one").write(tmp_path)
    DrainMark(tmp_path).set(True)
    Carrier.of_this_process("two").write(tmp_path)
    assert not DrainMark(tmp_path).is_set


def test_it_can_be_taken_back(tmp_path: Path) -> None:
    mark = DrainMark(tmp_path)
    mark.set(True)
    mark.set(False)
    assert not mark.is_set
    assert not DrainMark(tmp_path).is_set


def test_a_folder_that_takes_no_file_is_an_error(tmp_path: Path) -> None:
    """What would not outlive the agent is not promised."""
    mark = DrainMark(tmp_path / "gone")
    with pytest.raises(UnavailableError):
        mark.set(True)
    assert not mark.is_set
