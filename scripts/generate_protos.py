"""Generates the Python code of `protos/cenote_proto/v1/*.proto`, or checks that the committed code is up to date.

    python scripts/generate_protos.py            writes the generated files beside their sources
    python scripts/generate_protos.py --check    exit status 1, and a list, when one differs

The generated code is committed: a user's install needs no compiler, and a reviewer sees what changed.
A file's path is its proto package and its Python module, so that generated imports are right as they stand.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent / "protos"
PACKAGE = Path("cenote_proto/v1")


def generate(target: Path) -> None:
    """Writes the `.py` and `.pyi` of each source into `target`. Raises SystemExit when protoc rejects one."""
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / PACKAGE).glob("*.proto"))
    if not sources:
        return
    well_known = resources.files("grpc_tools") / "_proto"
    paths = [f"--proto_path={ROOT}", f"--proto_path={well_known}"]
    for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc"):
        paths.append(
            f"--plugin={name}={Path(sys.executable).parent / name}"
        )  # found without an activated environment
    outputs = [f"--python_out={target}", f"--mypy_out=quiet:{target}"]
    status = protoc.main(["protoc", *paths, *outputs, *sources])
    services = [source for source in sources if "\nservice " in (ROOT / source).read_text(encoding="utf-8")]
    if status == 0 and services:
        outputs = [f"--grpc_python_out={target}", f"--mypy_grpc_out=quiet:{target}"]
        status = protoc.main(["protoc", *paths, *outputs, *services])
    if status != 0:
        raise SystemExit(status)


def stale(fresh: Path) -> list[str]:
    """Generated files that differ between `fresh` and the tree, including missing and orphaned ones."""
    names = {path.relative_to(base) for base in (fresh, ROOT) for path in (base / PACKAGE).glob("*_pb2*.py*")}
    return sorted(str(name) for name in names if _text(fresh / name) != _text(ROOT / name))


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def check() -> int:
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        names = stale(Path(folder))
    for name in names:
        print(
            f"protos/{name} is not what its source gives; run: python scripts/generate_protos.py",
            file=sys.stderr,
        )
    return 1 if names else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="generate the Python code of the protobuf sources")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when committed code is stale"
    )
    if parser.parse_args().check:
        return check()
    generate(ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
