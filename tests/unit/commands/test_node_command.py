"""`cenote node drain` and `resume`: what they print, how long they wait, and their exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cenote.cli.exit_status import ExitStatus
from cenote.cli.main import main
from cenote.cli.platform import node
from cenote_proto.v1.platform_pb2 import NodeRuntime

MOVING = NodeRuntime(id="rt_1", name="moving", durable=True)
FIXED = NodeRuntime(id="rt_2", name="fixed")
OTHERS = NodeRuntime(id="rt_3")


class FakeConnection:
    """looks: what is left at each look; the last one again and again."""

    def __init__(self, looks: list[list[NodeRuntime]]) -> None:
        self.asked: list[tuple[str, bool]] = []
        self._looks = looks

    def drain(self, name: str, *, resume: bool) -> list[NodeRuntime]:
        self.asked.append((name, resume))
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[list[NodeRuntime]]:
    """What is left at each look. No time passes between two."""
    looks: list[list[NodeRuntime]] = []
    connection = FakeConnection(looks)

    @contextmanager
    def connected(_where: object) -> Iterator[FakeConnection]:
        yield connection

    monkeypatch.setattr(node, "platform_connection", connected)
    monkeypatch.setattr(node, "platform_destination", lambda *_args, **_options: None)
    monkeypatch.setattr(node, "LOOK_EVERY", 0.0)
    return looks


def test_it_waits_until_durable_runtimes_have_left(
    looks: list[list[NodeRuntime]], capsys: pytest.CaptureFixture[str]
) -> None:
    looks += [[MOVING], [MOVING], []]
    assert ExitStatus.OK == main(["node", "drain", "n1"])
    assert "n1 has no runtimes; it can be ended\n" == capsys.readouterr().out


def test_what_ends_with_the_machine_is_named_and_not_waited_for(
    looks: list[list[NodeRuntime]], capsys: pytest.CaptureFixture[str]
) -> None:
    """By id, where it belongs to another tenant."""
    looks += [[FIXED, OTHERS]]
    assert ExitStatus.FAILED == main(["node", "drain", "n1"])
    first, *others = capsys.readouterr().out.splitlines()
    assert "n1 still has 2 runtimes:" == first
    assert [
        "  fixed  not durable: ends with the machine",
        "  rt_3  not durable: ends with the machine",
    ] == others


def test_a_durable_runtime_that_cannot_leave_is_waited_for_as_long_as_is_said(
    looks: list[list[NodeRuntime]], capsys: pytest.CaptureFixture[str]
) -> None:
    looks += [[MOVING]]
    assert ExitStatus.FAILED == main(["node", "drain", "n1", "--wait", "0"])
    assert "  moving  durable: had cells all the time" in capsys.readouterr().out


def test_a_script_gets_what_is_left_as_json(
    looks: list[list[NodeRuntime]], capsys: pytest.CaptureFixture[str]
) -> None:
    looks += [[FIXED]]
    assert ExitStatus.FAILED == main(["node", "drain", "n1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {"node": "n1", "runtimes": [{"id": "rt_2", "name": "fixed", "durable": False}]} == found


def test_a_machine_takes_runtimes_again(
    looks: list[list[NodeRuntime]], capsys: pytest.CaptureFixture[str]
) -> None:
    looks += [[FIXED]]
    assert ExitStatus.OK == main(["node", "resume", "n1"])
    assert "n1 takes runtimes\n" == capsys.readouterr().out
