"""Work that imports leave to the garbage collector is done before a copy is made."""

from __future__ import annotations

import gc
import sys
from types import ModuleType

import pytest

from cenote_worker.jail.snapshots import memory
from cenote_worker.jail.snapshots.memory import MANY_MODULES, Imported


def _import(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    modules = dict(sys.modules) | {f"cenote_test_{i}": ModuleType("m") for i in range(count)}
    monkeypatch.setattr(memory, "_modules", modules)


@pytest.mark.slow
def test_many_modules_are_settled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Imported()
    _import(monkeypatch, MANY_MODULES - 1)
    assert not known.settle()
    _import(monkeypatch, MANY_MODULES)
    assert known.settle()
    assert not known.settle()


@pytest.mark.slow
def test_who_has_turned_the_collector_off_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Imported()
    _import(monkeypatch, MANY_MODULES)
    gc.disable()
    try:
        assert not known.settle()
    finally:
        gc.enable()
    assert known.settle()
