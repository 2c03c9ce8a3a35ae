"""Files closed by a `with` statement: programs cannot tell the rebuilt objects from the originals."""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import os
import weakref
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.descriptors import all_closed

from cenote_worker.jail.snapshots.deltas.bindings import BindingsBaseline, bring_about, difference
from cenote_worker.jail.snapshots.deltas.plain_objects import describe_file, rebuild_file

CONTENTS = b"one\ntwo\r\nthree\rfour"


class Text(str):
    __slots__ = ()


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = tmp_path / "file"
    path.write_bytes(CONTENTS)
    return str(path)


def left(place: str, mode: str, **settings: Any) -> Any:
    with open(place, mode, **settings) as it:
        if it.readable():
            it.seek(0)
            it.read()
        if it.writable():
            it.write(b"a" if "b" in mode else "a")
    return it


def seen(it: Any) -> object:
    """Every attribute that a program can read."""
    told: list[object] = []
    while True:
        for name in dir(it):
            try:
                value = getattr(it, name)
            except (ValueError, io.UnsupportedOperation) as error:
                value = error
            told.append((name, type(value), repr(value) if isinstance(value, str | int | tuple) else ""))
        told.append((repr(it), vars(it)))
        inner = next((getattr(it, each) for each in ("buffer", "raw") if hasattr(it, each)), None)
        if inner is None:
            return told
        it = inner


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("w", {}),
        ("r", {}),
        ("r", {"newline": ""}),
        ("r", {"newline": "\n"}),
        ("rt", {"encoding": "latin-1", "errors": "replace"}),
        ("r", {"encoding": "utf-16-le", "errors": "ignore"}),
        ("a", {"errors": "ignore"}),
        ("r+", {}),
        ("w+", {}),
        ("a+", {}),
        ("wb", {}),
        ("rb", {}),
        ("r+b", {}),
        ("ab", {}),
    ],
)
def test_another_one_looks_the_same(place: str, mode: str, settings: dict[str, Any]) -> None:
    it = left(place, mode, **settings)
    told = describe_file(it)
    assert told is not None
    with all_closed(place):
        assert seen(it) == seen(rebuild_file(told))


def test_one_that_was_just_made(tmp_path: Path) -> None:
    it = left(str(tmp_path / "new"), "x")
    told = describe_file(it)
    assert told is not None
    assert seen(it) == seen(rebuild_file(told))


@pytest.mark.parametrize(
    "deed",
    [
        lambda it: it.buffer,
        lambda it: it.buffer.raw,
        weakref.ref,
        lambda it: weakref.ref(it.buffer),
        lambda it: setattr(it, "more", 1),
        lambda it: setattr(it.buffer.raw, "more", 1),
    ],
)
def test_somebody_else_has_a_part_of_it(place: str, deed: Callable[[Any], object]) -> None:
    """Or it has a part that others have not."""
    it = left(place, "r")
    assert describe_file(it) is not None
    other = deed(it)
    assert describe_file(it) is None
    del other


def test_one_without_its_buffer() -> None:
    it = io.TextIOWrapper(io.BytesIO())
    it.detach()
    assert describe_file(it) is None


@pytest.mark.parametrize(
    "make",
    [
        open,
        lambda place: left(place, "r", buffering=1),
        lambda place: left(Text(place), "r"),
        lambda place: left(os.open(place, os.O_RDONLY), "r"),  # type: ignore[arg-type]
        lambda place: left(os.fsencode(place), "r"),  # type: ignore[arg-type]
        lambda place: left(place, "rb", buffering=0),
        lambda _: io.StringIO(),
        lambda place: place,
    ],
)
def test_what_is_more_than_that(place: str, make: Callable[[str], Any]) -> None:
    """An open file, one with an attribute that is not plain text, or one of another kind."""
    it = make(place)
    assert describe_file(it) is None
    if isinstance(it, io.IOBase):
        it.close()


def ran(before: str, *cells: str) -> tuple[dict[str, object], dict[str, object]] | None:
    """The namespace after the cells, each compared with the first part, and one rebuilt from a second copy."""
    namespace: dict[str, object] = {}
    copy: dict[str, object] = {}
    exec(before, namespace)
    exec(before, copy)
    base, bindings = BindingsBaseline.of(namespace), None
    assert base is not None
    for cell in cells:
        exec(cell, namespace)
        bindings = difference(base, namespace, {"f"})
    if bindings is None:
        return None
    bring_about(copy, bindings)
    return namespace, copy


@pytest.mark.parametrize(
    ("before", "cells"),
    [
        ("", ["with open('a', 'w') as f: f.write('b')"]),
        ("with open('a', 'w') as f: pass", ["with open('a') as f: t = f.read()"]),
        ("with open('a', 'w') as f: pass", ["del f"]),
        ("with open('a', 'w') as f: pass", ["g = f", "with open('a', 'wb') as f: pass"]),
        ("", ["with open('a', 'w') as f: pass", "with open('a') as f: pass", "g = f"]),
    ],
)
def test_one_that_a_name_was_bound_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, cells: list[str]
) -> None:
    """Or one that a name released, repeatedly."""
    monkeypatch.chdir(tmp_path)
    both = ran(before, *cells)
    assert both is not None
    is_, told = both
    assert list(is_) == list(told)
    assert [seen(is_[name]) for name in "fg" if name in is_] == [
        seen(told[name]) for name in "fg" if name in told
    ]
    assert (is_.get("f") is is_.get("g")) == (told.get("f") is told.get("g"))


@pytest.mark.parametrize(
    ("before", "cell"),
    [
        ("", "f = open('a', 'w')"),
        ("", "with open('a', 'w') as f: files = [f]"),
        ("files = []", "with open('a', 'w') as f: files.append(f)"),
        ("f = open('a', 'w')", "f.close()"),
        ("f = open('a', 'w')", "del f"),
    ],
)
def test_one_that_somebody_else_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, cell: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ran(before, cell) is None


def _unnamed(place: str) -> Any:
    it = left(place, "r")
    del it.buffer.raw.name
    return it


def _in_an_archive(place: str) -> Any:
    path = f"{place}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner", CONTENTS)
    return io.TextIOWrapper(zipfile.ZipFile(path).open("inner"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [
        lambda place: io.TextIOWrapper(gzip.GzipFile(f"{place}.gz", "wb")),
        lambda place: io.TextIOWrapper(bz2.BZ2File(f"{place}.bz2", "wb")),
        lambda _: io.TextIOWrapper(io.BytesIO(CONTENTS)),
        lambda place: io.TextIOWrapper(io.BufferedReader(io.FileIO(place))),
        lambda _: io.BufferedReader(io.BytesIO(CONTENTS)),  # type: ignore[arg-type]
        _in_an_archive,
        _unnamed,
    ],
    ids=["gzip", "bz2", "memory", "by hand", "bytes of memory", "archive", "unnamed"],
)
def test_of_what_lies_elsewhere_nothing_is_told(place: str, made: Callable[[str], Any]) -> None:
    """Compressed files, archive members, in-memory files; nor anything without an attribute that `open` sets."""
    it = made(place)
    it.close()
    gc.collect()  # some of them are in reference cycles, which count as other owners until they are collected
    assert describe_file(it) is None
