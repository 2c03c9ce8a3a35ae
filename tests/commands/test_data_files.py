"""Tests of `cenote.cli.data_files`."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from cenote.cli.data_files import DataFile, data_file, load
from cenote.runtime import PythonRuntime
from cenote_security.errors import UsageError


def test_a_name_and_a_path() -> None:
    """`name=path` is split at the first equals sign."""
    assert DataFile(name="sales", path=Path("a=b.csv")) == data_file("sales=a=b.csv")


@pytest.mark.parametrize(
    "text", ["sales.csv", "=x.csv", "two words=x.csv", "x=", "x=program.exe", "x=none", "class=x.csv"]
)
def test_anything_else_is_refused(text: str) -> None:
    """Without a Python name, a path and a known suffix, the message says what to write."""
    with pytest.raises(argparse.ArgumentTypeError, match=r"name=path|known are \.csv"):
        data_file(text)


@pytest.mark.parametrize(
    ("file", "content", "described"),
    [
        ("x.csv", "a,b\n1,2\n3,4\n", ("DataFrame", (2, 2))),
        ("x.tsv", "a\tb\n1\t2\n", ("DataFrame", (1, 2))),
        ("x.jsonl", '{"a": 1}\n{"a": 2}\n', ("DataFrame", (2, 1))),
        ("x.json", '{"a": [1, 2]}', ("dict", (1,))),
        ("x.txt", "some text", ("str", None)),
    ],
)
def test_a_file_becomes_a_value_of_another_runtime(
    file: str, content: str, described: tuple[str, tuple[int, ...] | None], tmp_path: Path
) -> None:
    """It is parsed in one jail and arrives in another, by reference."""
    path = tmp_path / file
    path.write_text(content)
    with PythonRuntime() as scratch:
        variable = load(DataFile(name="data", path=path), scratch)
    with PythonRuntime(variables=[variable]) as runtime:
        info = runtime.describe()[0]
    assert described == (info.type.rpartition(".")[2], info.shape)


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("x.csv", "a\r\n1\r\n", "[1]"),
        ("x.jsonl", '{"a": 1}\r\n{"a": 2}\r\n', "[1, 2]"),
        ("x.json", '{"a": [1]}', "[1]"),
        ("x.txt", "a", "'a'"),
        ("x.md", "# a", "'# a'"),
    ],
)
def test_a_byte_order_mark_is_no_content(file: str, content: str, expected: str, tmp_path: Path) -> None:
    """Editors and Excel write one."""
    path = tmp_path / file
    path.write_bytes(b"\xef\xbb\xbf" + content.encode())
    with PythonRuntime() as scratch, PythonRuntime() as runtime:
        runtime.inject(load(data_file(f"data={path}"), scratch))
        code = "data if isinstance(data, str) else list(data['a'])"
        assert expected == runtime.execute(code).value


def test_a_file_that_does_not_parse(tmp_path: Path) -> None:
    """The message names the file and what the parser said."""
    path = tmp_path / "x.json"
    path.write_text("{")
    with (
        PythonRuntime() as scratch,
        pytest.raises(UsageError, match=r"cannot parse .*x\.json: .*JSONDecodeError"),
    ):
        load(DataFile(name="data", path=path), scratch)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The message names the file and the reason."""
    with PythonRuntime() as scratch, pytest.raises(UsageError, match=r"cannot read .*No such file"):
        load(DataFile(name="data", path=tmp_path / "x.csv"), scratch)
