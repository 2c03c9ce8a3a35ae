"""Runs clients in JavaScript and TypeScript over Cenote's HTTP interface: E2B's npm packages, unchanged, and a client
whose types are generated from the OpenAPI document.

    python -m tests.peers.npm                                       over `cenote serve` and over `cenote up`
    python -m tests.peers.npm --suite code-interpreter/js           E2B's own suite over `cenote serve`

Needs Node 20 and npm; their packages go to `.venv-peers-npm`, which the first run makes. E2B's suite is in its
repository (https://github.com/e2b-dev/code-interpreter), and runs against the installed package. Exit status 1: a
test fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.request import urlopen

from tests.peers.consumers import DOORS, ROOT, served

PACKAGES: Final[Mapping[str, str]] = {
    "@e2b/code-interpreter": "2.8.0",
    "e2b": "2.51.0",
    "@types/node": "^20",
    "dotenv": "^16",
    "openapi-fetch": "0.17.0",
    "openapi-typescript": "7.13.0",
    "typescript": "^5.9",  # openapi-typescript needs the compiler's old interface
    "vitest": "^4.1",
}
TESTS: Final = Path(__file__).with_name("over_npm")
FOLDER: Final = ROOT / ".venv-peers-npm"
_BIN: Final = FOLDER / "node_modules" / ".bin"
_SUITE_ENDS: Final = "vitest.config.mts"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", type=Path, help="the folder `js` of E2B's repository code-interpreter")
    options, more = parser.parse_known_args()
    if options.suite is not None and not (options.suite / _SUITE_ENDS).exists():
        parser.error(f"{options.suite} has no {_SUITE_ENDS}")
    install()
    with TemporaryDirectory() as temporary, ExitStack() as servers:
        if options.suite is not None:
            return suite(options.suite, servers.enter_context(served(Path(temporary))), more)
        failed = list[str]()
        for server, door in DOORS.items():
            folder = Path(temporary) / server
            folder.mkdir()
            url, token = servers.enter_context(door(folder))
            typed(url)
            for tests in ("with_e2b.mjs", "with_openapi.mjs"):
                status, passed, total = run(tests, environ_of(url, token), more)
                print(f"{tests} over `cenote {server}`: {passed} of {total}", flush=True)
                if status:
                    failed.append(f"{tests} over `cenote {server}`")
    print(f"failed: {', '.join(failed)}" if failed else "all pass")
    return 1 if failed else 0


def install() -> None:
    """The packages are installed again when they change."""
    FOLDER.mkdir(exist_ok=True)
    package = FOLDER / "package.json"
    wanted = json.dumps({"private": True, "type": "module", "dependencies": PACKAGES}, indent=2)
    if not package.exists() or package.read_text() != wanted:
        package.unlink(missing_ok=True)
        made = FOLDER / "package.new.json"
        made.write_text(wanted)
        shutil.copy(made, package)
        try:
            subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=FOLDER, check=True)
        except BaseException:
            package.unlink()
            raise
        finally:
            made.unlink()
    for tests in TESTS.iterdir():
        shutil.copy(tests, FOLDER)


def typed(url: str) -> None:
    """Generates types from the document of that server, and compiles the client that uses them."""
    with urlopen(f"{url}/openapi.json") as document:
        (FOLDER / "openapi.json").write_bytes(document.read())
    generate = [_BIN / "openapi-typescript", "openapi.json", "-o", "cenote.d.ts"]
    subprocess.run([*generate, "--default-non-nullable=false"], cwd=FOLDER, check=True)
    options = ["--strict", "--target", "es2023", "--module", "nodenext", "--skipLibCheck", "--outDir", "."]
    subprocess.run([_BIN / "tsc", *options, "with_openapi.ts"], cwd=FOLDER, check=True)
    (FOLDER / "with_openapi.js").replace(FOLDER / "with_openapi.mjs")


def environ_of(url: str, token: str) -> dict[str, str]:
    e2b = {"E2B_API_KEY": token, "E2B_API_URL": url, "E2B_SANDBOX_URL": url}
    return {**os.environ, **e2b, "CENOTE_URL": url, "CENOTE_TOKEN": token}


def run(tests: str, environ: Mapping[str, str], more: Sequence[str]) -> tuple[int, int, int]:
    """The status of the run, and how many tests passed of how many; those that are skipped did not pass."""
    # The SDK leaves a timer of a minute behind for each request that was refused.
    command = [
        "node",
        "--test",
        "--test-reporter=tap",
        "--test-timeout=120000",
        "--test-force-exit",
        *more,
        tests,
    ]
    ended = subprocess.run(command, cwd=FOLDER, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    counts = dict(re.findall(r"^# (tests|pass) (\d+)$", ended.stdout, re.MULTILINE))
    if ended.returncode:
        print(ended.stdout)
    return ended.returncode, int(counts.get("pass", 0)), int(counts.get("tests", 1))


def suite(folder: Path, door: tuple[str, str], more: Sequence[str]) -> int:
    """Runs E2B's own tests of its code interpreter. Its sources are replaced by the installed package."""
    copy = FOLDER / "suite"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder / "tests", copy / "tests")
    shutil.copy(folder / _SUITE_ENDS, copy)
    (copy / "src").mkdir()
    (copy / "src" / "index.ts").write_text(
        "export * from '@e2b/code-interpreter'\nexport { default } from '@e2b/code-interpreter'\n"
    )
    return subprocess.run(
        [_BIN / "vitest", "run", "--maxWorkers=2", *more], cwd=copy, env=environ_of(*door), check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
