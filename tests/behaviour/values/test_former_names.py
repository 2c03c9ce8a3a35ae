"""A pickle of an earlier version names functions and classes by modules that have moved since."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from cenote_security.former_names import MOVED
from cenote_worker.pickling.buffers_unsafe import loads
from cenote_worker.transport.content import Content


def test_each_module_that_has_moved_is_there() -> None:
    """No module has the former name of another."""
    assert set() == MOVED.keys() & set(MOVED.values())
    # In a separate process: some of them are made for a jail's, which imports them first.
    subprocess.run([sys.executable, "-c", f"import {', '.join(sorted(set(MOVED.values())))}"], check=True)


def test_a_function_is_found_where_it_is_now() -> None:
    """As a client of an earlier version names it."""
    found = loads(Content.pack([b"ccenote_worker.code_versions\nmade_here\n."]))
    assert ("cenote_worker.pickling.code_objects", "made_here") == (found.__module__, found.__qualname__)  # type: ignore[attr-defined]


def test_a_module_of_no_version_is_named() -> None:
    """As without the table of former names."""
    with pytest.raises(ModuleNotFoundError, match=r"cenote_worker\.nowhere"):
        loads(Content.pack([b"ccenote_worker.nowhere\nmade_here\n."]))


def test_a_former_name_is_the_module_itself() -> None:
    """Not a copy, whose classes would be different."""
    former = importlib.import_module("cenote_worker.in_jail.value_forms")
    assert former is importlib.import_module("cenote_worker.jail.values.value_forms")
    assert "cenote_worker.jail.values.value_forms" == former.__name__
