"""Tiny wheels made by the tests: a wheel is a zip file with records."""

from __future__ import annotations

import tarfile
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from io import BytesIO
from pathlib import Path


def write_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], requires: Sequence[str] = ()
) -> Path:
    """files: text by path, relative to the folder of packages."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    records = [f"{path},sha256={_sum(text)},{len(text.encode())}" for path, text in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*records, f"{info}/RECORD,,"]) + "\n"
    file = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        for path, text in content.items():
            wheel.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), text)
    return file


def write_sources(folder: Path, name: str, version: str, setup: str) -> Path:
    """A source distribution, whose `setup.py` would run if it were built."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(file, "w:gz") as sources:
        for path, text in {
            "setup.py": setup,
            "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        }.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text.encode())
            sources.addfile(entry, BytesIO(text.encode()))
    return file


def write_index(wheels: Path, simple: Path) -> None:
    """A package index of these wheels, as a web server shows it: a page with links for each package."""
    for file in wheels.glob("*.whl"):
        folder = simple / file.name.split("-")[0]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.name).write_bytes(file.read_bytes())
    for folder in simple.iterdir():
        links = "".join(f'<a href="{each.name}">{each.name}</a>' for each in sorted(folder.iterdir()))
        (folder / "index.html").write_text(f"<html><body>{links}</body></html>")


def _sum(text: str) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()
