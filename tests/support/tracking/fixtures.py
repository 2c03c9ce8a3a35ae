"""Namespaces of this process; everything that cells may change is restored."""

from __future__ import annotations

import builtins
import locale
import logging
import os
import random
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.tracking.steps import Steps

from cenote_worker.jail.tracking.code import unbounded_effects
from cenote_worker.jail.tracking.files import audit_hook, workdir_files
from cenote_worker.jail.tracking.process_state import library_digest


def _passed_over(message: object) -> None:
    """Replaces pytest's collector of warnings, which a step would take for a change by its user."""


_passed_over.__module__ = "warnings"


def _open_files() -> set[tuple[int, str]]:
    """Numbers with their targets: a closed one may get another target."""
    found = set[tuple[int, str]]()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add((int(link.name), os.readlink(link)))
    return found


def _of_steps() -> Callable[[], list[int]]:
    """Files that other code of this process has open, such as a waiting platform, are not read by steps."""
    others = _open_files()
    return lambda: [number for number, _ in _open_files() - others]


def _of_tests() -> set[str]:
    """Libraries that were loaded before the first step, without Python's own."""
    return {each.partition(".")[0] for each in list(sys.modules)} - sys.stdlib_module_names


@pytest.fixture
def in_process(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Steps]]:
    """Makes namespaces one after the other. Everything that cells may change is restored."""
    monkeypatch.chdir(tmp_path)
    # Temporary files that change are read. SQLite's in this process must not be: closing one releases its locks.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(warnings, "_showwarnmsg_impl", _passed_over)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(workdir_files, "_descriptors", _of_steps())
    # The handlers of logs are pytest's, and lead to all test objects; no step changes any of it.
    monkeypatch.setattr(library_digest, "_NOT_THEIRS", library_digest._NOT_THEIRS | _of_tests())
    environment, state, language = dict(os.environ), random.getstate(), locale.setlocale(locale.LC_ALL)
    main, modules, names, level = (
        sys.modules["__main__"],
        set(sys.modules),
        dict(vars(builtins)),
        logging.root.level,
    )

    def make() -> Steps:
        steps = Steps(tmp_path)
        sys.modules["__main__"] = steps.module
        return steps

    with warnings.catch_warnings():
        yield make
    audit_hook.listen(None)
    sys.modules["__main__"] = main
    for added in sys.modules.keys() - modules:
        if not str(getattr(sys.modules[added], "__file__", None) or tmp_path).startswith(str(tmp_path)):
            continue
        del sys.modules[added]
    os.environ.clear()
    os.environ.update(environment)
    random.setstate(state)
    locale.setlocale(locale.LC_ALL, language)
    logging.root.setLevel(level)
    vars(builtins).update(names)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads and tasks of the test process that other tests have left do not count as the steps'."""
    others = {thread for thread in threading.enumerate() if thread is not threading.current_thread()}

    class OfSteps:
        """The threads of the steps."""

        def values(self) -> list[threading.Thread]:
            return [thread for thread in threading.enumerate() if thread not in others]

    monkeypatch.setattr(unbounded_effects, "_alive", OfSteps())
    monkeypatch.setattr(unbounded_effects, "_waiting_tasks", lambda: False)


@pytest.fixture
def steps(in_process: Callable[[], Steps]) -> Steps:
    return in_process()
