"""Files that a user hands to an agent: read here as bytes, parsed in a jail, passed on by reference."""

from __future__ import annotations

import argparse
import codecs
import keyword
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cenote_security.errors import UsageError
from cenote_security.extras import MissingExtraError

if TYPE_CHECKING:
    from cenote.runtime import PythonRuntime, Variable
    from cenote_worker.execution.results import ErrorInfo

LOADERS: Final = {
    ".csv": "pandas.read_csv(stream(), sep=separator(), encoding=encoding)",
    ".tsv": "pandas.read_csv(stream(), sep='\\t', encoding=encoding)",
    ".parquet": "pandas.read_parquet(stream())",
    ".feather": "pandas.read_feather(stream())",
    ".arrow": "pandas.read_feather(stream())",
    ".xlsx": "pandas.read_excel(stream())",
    ".xlsm": "pandas.read_excel(stream())",
    ".jsonl": "pandas.read_json(io.StringIO(text()), lines=True)",
    ".ndjson": "pandas.read_json(io.StringIO(text()), lines=True)",
    ".json": "json.loads(text())",
    ".npy": "numpy.load(stream(), allow_pickle=False)",
    ".txt": "text()",
    ".md": "text()",
}
"""Expressions over a file's content. They run in the jail, so a hostile file meets no trusted parser."""

COMPRESSED: Final = {
    ".gz": "gzip.decompress(content)",
    ".bz2": "bz2.decompress(content)",
    ".xz": "lzma.decompress(content)",
    ".zip": "only_member(content)",
}
"""Endings that may follow those of LOADERS, and what undoes them."""

_PROGRAM = """
import bz2, codecs, csv, gzip, io, json, lzma, zipfile
{imports}

def only_member(packed):
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        names = [each for each in archive.namelist() if not each.endswith("/")]
        if len(names) != 1:
            raise ValueError(f"a zip file with {{len(names)}} files in it; unpack it, and name the one that is meant")
        return archive.read(names[0])

content = {unpacked}
# Editors and Excel put a mark before the text. That of UTF-32 begins with that of UTF-16.
marks = [(codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
         (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")]
encoding = {encoding!r} or next((name for mark, name in marks if content.startswith(mark)), "utf-8")

def stream():
    return io.BytesIO(content)

def separator():
    # Excel writes semicolons where a comma is the decimal sign. With one column there is none.
    header = io.TextIOWrapper(stream(), encoding, newline="").readline()
    fields = {{each: len(next(csv.reader([header], delimiter=each), ())) for each in ",;\t|"}}
    return "," if fields[","] > 1 else max(fields, key=fields.get)

def text():
    return content.decode(encoding)

content = {loader}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A variable's name and the file that it starts from. encoding: of its text; None is Unicode, by its mark."""

    name: str
    path: Path
    encoding: str | None = None


def data_file(text: str) -> DataFile:
    """For argparse: `name=path`. Raises ArgumentTypeError with what to write instead."""
    name, sign, path = text.partition("=")
    if not sign or not name or not path:
        raise argparse.ArgumentTypeError(f"write name=path, not {text!r}")
    if problem := _problem_of(name):
        instead = f"{_name_for(name)}={path}"
        raise argparse.ArgumentTypeError(
            f"{name!r} cannot be the name of a variable: {problem}; write a Python name, such as {instead}"
        )
    _, ending = _endings(Path(path))
    if ending not in LOADERS:
        known = f"{' '.join(LOADERS)}, and each with {' '.join(COMPRESSED)}"
        raise argparse.ArgumentTypeError(f"cannot tell how to read {path!r}; known are {known}")
    return DataFile(name=name, path=Path(path))


def data_encoding(text: str) -> str:
    """For argparse: the name of an encoding of text. Raises ArgumentTypeError for one that Python does not know."""
    try:
        codecs.lookup(text)
        "".encode(text)
    except (LookupError, ValueError):
        raise argparse.ArgumentTypeError(
            f"Python knows no encoding {text!r}; common are cp1252, latin-1, utf-16 and shift_jis"
        ) from None
    return text


def load(file: DataFile, scratch: PythonRuntime) -> Variable:
    """The file as a variable that refers to the value, parsed in the jail of `scratch`.

    Raises UsageError when the file cannot be read or parsed, and UnavailableError when a library is missing.
    """
    from cenote.runtime import Variable

    # The name is the user's and may be any; nothing of it is in the scratch namespace.
    scratch.inject(Variable("content", _read(file.path)))
    try:
        result = scratch.execute(_program(file))
        if result.error is not None:
            raise _failure(file, result.error)
        return Variable(file.name, scratch.share("content"), f"content of {file.path.name}")
    finally:
        scratch.delete("content")


def _program(file: DataFile) -> str:
    packing, ending = _endings(file.path)
    loader = LOADERS[ending]
    library = loader.partition(".")[0]
    return _PROGRAM.format(
        imports=f"import {library}" if library in ("pandas", "numpy") else "",
        unpacked=COMPRESSED.get(packing, "content"),
        encoding=file.encoding,
        loader=loader,
    )


def _endings(path: Path) -> tuple[str, str]:
    """Those of the compression, if there is one, and of what is in it."""
    last = path.suffix.lower()
    return (last, Path(path.stem).suffix.lower()) if last in COMPRESSED else ("", last)


def _failure(file: DataFile, error: ErrorInfo) -> UsageError | MissingExtraError:
    if error.type in ("ModuleNotFoundError", "ImportError"):
        return MissingExtraError(f"what reads {file.path}", "data", error.message)
    if error.type == "UnicodeDecodeError":
        what = f"is not in {file.encoding}" if file.encoding else "is not in UTF-8"
        return UsageError(
            f"{file.path} {what}: {error.message}; name its encoding, such as --encoding cp1252 for one of Excel's"
        )
    return UsageError(f"cannot parse {file.path}: {error.type}: {error.message}")


def _problem_of(name: str) -> str:
    """Why Python takes it for no variable's name; empty if it does."""
    if keyword.iskeyword(name):
        return "it is a keyword of Python"
    return (
        ""
        if name.isidentifier()
        else "it is not made of letters, digits and underscores, or begins with a digit"
    )


def _name_for(text: str) -> str:
    """A name that Python takes, like the one that it does not."""
    name = "".join(letter if f"x{letter}".isidentifier() else "_" for letter in text)
    name = name if name.isidentifier() else f"_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except IsADirectoryError:
        raise UsageError(f"cannot read {path}: it is a folder; name the files in it one by one") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
