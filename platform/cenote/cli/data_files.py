"""Files that a user hands to an agent: read here as bytes, parsed in a jail, passed on by reference."""

from __future__ import annotations

import argparse
import keyword
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cenote_security.errors import UsageError

if TYPE_CHECKING:
    from cenote.runtime import PythonRuntime, Variable

# Expressions over the file's bytes in `raw`. They run in the jail, so a hostile file meets no trusted parser.
# Editors and Excel put a byte-order mark before UTF-8.
LOADERS = {
    ".csv": "pandas.read_csv(io.BytesIO(raw))",
    ".tsv": "pandas.read_csv(io.BytesIO(raw), sep='\\t')",
    ".parquet": "pandas.read_parquet(io.BytesIO(raw))",
    ".feather": "pandas.read_feather(io.BytesIO(raw))",
    ".arrow": "pandas.read_feather(io.BytesIO(raw))",
    ".jsonl": "pandas.read_json(io.BytesIO(raw), lines=True, encoding='utf-8-sig')",
    ".json": "json.loads(raw)",
    ".npy": "numpy.load(io.BytesIO(raw), allow_pickle=False)",
    ".txt": "raw.decode('utf-8-sig')",
    ".md": "raw.decode('utf-8-sig')",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A variable's name and the file that it starts from."""

    name: str
    path: Path


def data_file(text: str) -> DataFile:
    """For argparse: `name=path`. Raises ArgumentTypeError with what to write instead."""
    name, _, path = text.partition("=")
    if not path or not name.isidentifier() or keyword.iskeyword(name):
        raise argparse.ArgumentTypeError(f"write name=path with a Python name, not {text!r}")
    if Path(path).suffix.lower() not in LOADERS:
        raise argparse.ArgumentTypeError(f"cannot tell how to read {path!r}; known are {' '.join(LOADERS)}")
    return DataFile(name=name, path=Path(path))


def load(file: DataFile, scratch: PythonRuntime) -> Variable:
    """The file as a variable that refers to the value, parsed in the jail of `scratch`.

    Raises UsageError when the file cannot be read or parsed.
    """
    from cenote.runtime import Variable

    loader = LOADERS[file.path.suffix.lower()]
    modules = ", ".join(sorted({"io", loader.partition(".")[0]} - {"raw"}))
    scratch.inject(Variable("raw", _read(file.path)))
    result = scratch.execute(f"import {modules}\n{file.name} = {loader}")
    scratch.delete("raw")
    if result.error is not None:
        raise UsageError(f"cannot parse {file.path}: {result.error.type}: {result.error.message}")
    return Variable(file.name, scratch.share(file.name), f"content of {file.path.name}")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
