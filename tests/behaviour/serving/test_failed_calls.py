"""Calls at which the server itself fails: what the client hears, and what the log says."""

from __future__ import annotations

import json

import pytest
from tests.support.serving.fixtures import World

from cenote.gateway.process.logs import JsonFormatter
from cenote_proto.v1 import jail_pb2


def test_a_line_of_the_log_has_its_step(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And runtime and tenant. The client hears only that there is a log."""

    def fail(_listener: object) -> None:
        raise RuntimeError("unexpected")

    name = world.runtime()
    line = world.line(name)
    line.run("x = 1")
    line.run("x = 2")
    monkeypatch.setattr(world.hosted[name], "describe", fail)
    failed = line.answer(line.send(describe=jail_pb2.Describe())).failure
    assert "its log says how" in failed.message
    assert "unexpected" not in failed.message
    (record,) = (each for each in caplog.records if each.name == "cenote.serving")
    shown = json.loads(JsonFormatter().format(record))
    assert (name, "us", "2") == (shown["runtime"], shown["tenant"], shown["step"])
    assert "RuntimeError: unexpected" in shown["error"]
