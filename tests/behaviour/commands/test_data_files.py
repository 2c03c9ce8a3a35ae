"""Tests of `cenote.cli.local.data_files`."""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pandas
import pytest

from cenote.cli.local.data_files import DataFile, data_encoding, data_file, load
from cenote.runtime import PythonRuntime
from cenote_security.errors import UnavailableError, UsageError


def test_a_name_and_a_path() -> None:
    """`name=path` is split at the first equals sign."""
    assert DataFile(name="sales", path=Path("a=b.csv")) == data_file("sales=a=b.csv")


@pytest.mark.parametrize("text", ["sales.csv", "=x.csv", "x=", "x=program.exe", "x=none", "x=program.exe.gz"])
def test_anything_else_is_refused(text: str) -> None:
    """Without a name, a path and a known suffix, the message shows the correct form."""
    with pytest.raises(argparse.ArgumentTypeError, match=r"name=path|known are \.csv"):
        data_file(text)


@pytest.mark.parametrize(
    ("text", "problem", "instead"),
    [
        ("class=x.csv", "'class' cannot be the name of a variable: it is a keyword", "class_=x.csv"),
        ("None=x.csv", "'None' cannot be the name of a variable: it is a keyword", "None_=x.csv"),
        ("two words=x.csv", "'two words' cannot be the name of a variable", "two_words=x.csv"),
        ("2024=x.csv", "'2024' cannot be the name of a variable", "_2024=x.csv"),
        ("my-data=x.csv", "'my-data' cannot be the name of a variable", "my_data=x.csv"),
    ],
)
def test_a_bad_name_is_blamed_on_the_name(text: str, problem: str, instead: str) -> None:
    """The message suggests a valid name."""
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        data_file(text)
    assert str(caught.value).startswith(problem)
    assert instead in str(caught.value)


CSV, LINE = "a\né\n", '{"a": "é"}\n'


def zipped(*names: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in names:
            archive.writestr(name, CSV)
    return packed.getvalue()


FILES = {
    "utf16.csv": CSV.encode("utf-16"),
    "utf32.tsv": CSV.encode("utf-32"),
    "utf16.jsonl": LINE.encode("utf-16"),
    "mark.ndjson": LINE.encode("utf-8-sig"),
    "utf16.json": b"\xff\xfe" + '{"a": ["é"]}'.encode("utf-16-le"),
    "packed.csv.gz": gzip.compress(CSV.encode()),
    "packed.CSV.GZ": gzip.compress(CSV.encode("utf-16")),
    "packed.csv.bz2": bz2.compress(CSV.encode()),
    "packed.csv.xz": lzma.compress(CSV.encode()),
    "packed.jsonl.gz": gzip.compress(LINE.encode("utf-8-sig")),
    "packed.csv.zip": zipped("any/name.csv"),
}


@pytest.fixture(scope="module")
def scratch() -> Iterator[PythonRuntime]:
    with PythonRuntime() as runtime:
        yield runtime


@pytest.fixture(scope="module")
def agents() -> Iterator[PythonRuntime]:
    with PythonRuntime() as runtime:
        yield runtime


@pytest.mark.sweep
@pytest.mark.parametrize("file", FILES)
def test_text_of_any_kind_of_unicode_packed_or_not(
    file: str, tmp_path: Path, scratch: PythonRuntime, agents: PythonRuntime
) -> None:
    """A byte order mark decides; compression is known by the last suffix."""
    path = tmp_path / file
    path.write_bytes(FILES[file])
    agents.inject(load(data_file(f"data={path}"), scratch))
    assert "['é']" == agents.execute("list(data['a'])").value
    agents.delete("data")


def test_other_encodings_are_named(tmp_path: Path, scratch: PythonRuntime, agents: PythonRuntime) -> None:
    """No encoding is guessed: the error says what to add, and with it the file is read."""
    path = tmp_path / "x.csv"
    path.write_bytes(CSV.encode("cp1252"))
    file = data_file(f"data={path}")
    with pytest.raises(
        UsageError, match=r"is not in UTF-8: .*0xe9.*; name its encoding, such as --encoding cp1252"
    ):
        load(file, scratch)
    agents.inject(load(replace(file, encoding=data_encoding("cp1252")), scratch))
    assert "['é']" == agents.execute("list(data['a'])").value
    agents.delete("data")
    for unknown in ("klingon", "base64"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"no encoding '{unknown}'"):
            data_encoding(unknown)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["raw", "content", "io", "pandas", "json", "stream"])
def test_any_name_will_do(name: str, tmp_path: Path, scratch: PythonRuntime, agents: PythonRuntime) -> None:
    """No name collides with one that the reading code uses."""
    path = tmp_path / "x.json"
    path.write_text("[1]")
    agents.inject(load(data_file(f"{name}={path}"), scratch))
    assert "[1]" == agents.execute(name).value
    agents.delete(name)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("x.csv.zip", zipped("a.csv", "b.csv"), "a zip file with 2 files in it; unpack it"),
        ("x.csv.gz", b"text", "BadGzipFile"),
        ("x.json.gz", gzip.compress(b"{"), "JSONDecodeError"),
    ],
    ids=["two files", "not packed", "half a value"],  # compressed data contains the time
)
def test_what_is_packed_wrongly(
    file: str, content: bytes, reason: str, tmp_path: Path, scratch: PythonRuntime
) -> None:
    """The message names the file and the error."""
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UsageError, match=rf"cannot parse .*{file}: .*{reason}"):
        load(data_file(f"data={tmp_path / file}"), scratch)


def test_a_folder_is_not_a_file(tmp_path: Path, scratch: PythonRuntime) -> None:
    """Spark and Dask write folders with the name of a file."""
    (tmp_path / "x.parquet").mkdir()
    with pytest.raises(UsageError, match="it is a folder; name the files in it one by one"):
        load(data_file(f"data={tmp_path / 'x.parquet'}"), scratch)


def test_a_workbook(tmp_path: Path, scratch: PythonRuntime, agents: PythonRuntime) -> None:
    """Its first sheet; without the library that reads it, the error says what to install."""
    path = tmp_path / "x.xlsx"
    path.write_bytes(b"no workbook")
    if find_spec("openpyxl") is None:
        path.write_bytes(zipped("xl/workbook.xml", "[Content_Types].xml"))
        with pytest.raises(UnavailableError, match=r"pip install 'cenote\[data\]' \(.*openpyxl"):
            load(data_file(f"data={path}"), scratch)
        return
    pandas.DataFrame({"a": ["é"]}).to_excel(path, index=False)
    agents.inject(load(data_file(f"data={path}"), scratch))
    assert "['é']" == agents.execute("list(data['a'])").value
    agents.delete("data")


def test_a_library_that_is_missing_is_named_with_the_way_to_get_it(
    tmp_path: Path, scratch: PythonRuntime
) -> None:
    """The jail reports the missing library; the command says what to install."""
    (tmp_path / "x.csv").write_text(CSV)
    scratch.execute("import sys; kept, sys.modules['pandas'] = sys.modules['pandas'], None")
    try:
        with pytest.raises(
            UnavailableError, match=r"what reads .*x\.csv is not .*: pip install 'cenote\[data\]'"
        ):
            load(data_file(f"data={tmp_path / 'x.csv'}"), scratch)
    finally:
        scratch.execute("sys.modules['pandas'] = kept")


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("file", "content", "described"),
    [
        ("x.csv", "a,b\n1,2\n3,4\n", ("DataFrame", (2, 2))),
        ("x.csv", "a;b\r\n1,5;2\r\n", ("DataFrame", (1, 2))),
        ("x.csv", '"one; two","b|c"\n1,2\n', ("DataFrame", (1, 2))),
        ("x.csv", '"one, two";b\n1;2\n', ("DataFrame", (1, 2))),
        ("x.csv", "a\tb\n1\t2\n", ("DataFrame", (1, 2))),
        ("x.csv", "a\n1\n2\n", ("DataFrame", (2, 1))),
        ("x.tsv", "a\tb\n1\t2\n", ("DataFrame", (1, 2))),
        ("x.jsonl", '{"a": 1}\n{"a": 2}\n', ("DataFrame", (2, 1))),
        ("x.json", '{"a": [1, 2]}', ("dict", (1,))),
        ("x.txt", "some text", ("str", None)),
    ],
)
def test_a_file_becomes_a_value_of_another_runtime(
    file: str, content: str, described: tuple[str, tuple[int, ...] | None], tmp_path: Path
) -> None:
    """It is parsed in one jail and passed to another, by reference."""
    path = tmp_path / file
    path.write_text(content)
    with PythonRuntime() as scratch:
        variable = load(DataFile(name="data", path=path), scratch)
    with PythonRuntime(variables=[variable]) as runtime:
        info = runtime.describe()[0]
    assert described == (info.type.rpartition(".")[2], info.shape)


@pytest.mark.sweep
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
    """The message names the file and the parser's error."""
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
