"""Runtimes that fork."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NoReturn

import pytest

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.errors import CheckpointRefusedError
from cenote_worker.runtime.state import images

Make = Callable[..., PythonRuntime]
Fork = Callable[..., list[PythonRuntime]]


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def make(closing: ExitStack) -> Make:
    """Makes runtimes that are closed after the test."""

    def made(**settings: Any) -> PythonRuntime:
        settings.setdefault("sandbox", SandboxPolicy(preload=("numpy",)))
        return closing.enter_context(PythonRuntime(**settings))

    return made


@pytest.fixture
def fork(closing: ExitStack) -> Fork:
    """Forks a runtime; the branches are closed after the test."""

    def forked(runtime: PythonRuntime, count: int = 1, **settings: Any) -> list[PythonRuntime]:
        made = runtime.fork(count=count, **settings)
        branches = made if isinstance(made, list) else [made]
        return [closing.enter_context(branch) for branch in branches]

    return forked


@pytest.fixture
def by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """States go by value, as where no process image is available."""

    def refused(*_: object, **__: object) -> NoReturn:
        raise CheckpointRefusedError("no image in this test")

    monkeypatch.setattr(images, "ImageRequest", refused)
