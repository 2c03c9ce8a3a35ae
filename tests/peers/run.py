"""Runs the CaveAgent library's own tests against `cenote.cave_agent`, and gives the reason for each failure.

    python -m tests.peers.run [--keep FOLDER] [pytest arguments]

The tests come from the library's source distribution, run unchanged, and are not kept. They need Python 3.12 and
this project installed; `make test-peers` provides both. Exit status 1: a test fails for a reason that
`reasons.toml` does not list.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
VERSION = "0.8.0"
TIMEOUT = 30
"""Seconds for one test."""

LIVE = "wants a live provider"
PRIVATE = "asks for a private name"
ABSENT = "uses a name that is not there"
SIGNS_OF_ABSENCE = ("is not there", "Missing", "'type'")
"""A missing constant is a class (`standing_in.Missing`) in a sum or a comparison."""


@dataclass(frozen=True)
class Failure:
    """test: file, class and function. message: the last line of the error."""

    test: str
    file: Path
    function: str
    message: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keep", type=Path, help="a folder for the sources, which is used again")
    options, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = sources(options.keep or Path(temporary))
        report = folder / "report.xml"
        run_tests(folder, report, more)
        passed, failures = read(report, folder)
    return tell(passed, failures)


def sources(folder: Path) -> Path:
    """The library's source distribution, without the library."""
    unpacked = folder / f"cave_agent-{VERSION}"
    if not unpacked.is_dir():
        archive = folder / f"cave_agent-{VERSION}.tar.gz"
        download = [
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            "cave-agent",
            "-d",
            str(folder),
        ]
        subprocess.run([sys.executable, *download, f"cave-agent=={VERSION}"], check=True)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    library = unpacked / "src"
    if library.is_dir():
        library.rename(unpacked / "library-that-is-not-run")
    return unpacked


def run_tests(folder: Path, report: Path, more: list[str]) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "standing_in",
        "-p",
        "no:cacheprovider",
        "-q",
        "--tb=line",
    ]
    command += ["--timeout", str(TIMEOUT), f"--junitxml={report}", *(more or ["tests"])]
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TIKTOKEN_CACHE_DIR": str(tokenizers()),
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, 1):
        sys.exit(f"the tests were not run:\n{done.stdout[-4000:]}")


def tokenizers() -> Path:
    """Those that LiteLLM ships: some tests compare with one, and would fetch it from the network."""
    library = importlib.util.find_spec("litellm")
    if library is None or not library.submodule_search_locations:
        sys.exit("the tests need LiteLLM; `make test-peers` installs it")
    return Path(library.submodule_search_locations[0]) / "litellm_core_utils" / "tokenizers"


def read(report: Path, folder: Path) -> tuple[int, list[Failure]]:
    """Number of passed tests, and the failures."""
    passed, failures = 0, []
    for case in ElementTree.parse(report).iter("testcase"):
        wrong = [part for part in case if part.tag in ("failure", "error")]
        if not wrong:
            passed += 1
            continue
        module, *classes = case.attrib["classname"].removeprefix("tests.").split(".")
        name = case.attrib["name"]
        test = "::".join([module, *classes, name])
        message = wrong[0].attrib.get("message", "").strip().split("\n")[0]
        failures.append(Failure(test, folder / "tests" / f"{module}.py", name.partition("[")[0], message))
    return passed, failures


def tell(passed: int, failures: list[Failure]) -> int:
    known: dict[str, list[str]] = tomllib.loads((HERE / "reasons.toml").read_text())
    reasons: dict[str, list[Failure]] = {}
    for failure in failures:
        reasons.setdefault(reason_of(failure, known) or "", []).append(failure)
    total = passed + len(failures)
    outside = sum(len(reasons.get(reason, ())) for reason in (LIVE, PRIVATE))
    print(
        f"cave-agent {VERSION}: {passed} of {total} pass; {passed} of the {total - outside} that want neither a"
    )
    print("live provider nor a private name")
    for reason, found in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
        print(f"{len(found):5}  {reason or 'NOT KNOWN:'}")
        counted = Counter(failure.test.partition("[")[0] for failure in found)
        for test in counted if not reason or os.environ.get("VERBOSE") else ():
            message = next(f.message for f in found if f.test.partition("[")[0] == test)
            print(f"         {test}: {message[:150]}")
    return 1 if "" in reasons else 0


def reason_of(failure: Failure, known: dict[str, list[str]]) -> str | None:
    if "model_id is the name of a model" in failure.message and "None" in failure.message:
        return LIVE
    if uses_private_names(failure.file, failure.function):
        return PRIVATE
    plain = failure.test.partition("[")[0]
    for reason, tests in known.items():
        if any(plain == test or plain.startswith(f"{test}::") for test in tests):
            return reason
    return ABSENT if any(sign in failure.message for sign in SIGNS_OF_ABSENCE) else None


def uses_private_names(file: Path, function: str) -> bool:
    """Whether a test, or the code of its file that it uses, mentions an attribute or a name that begins with `_`."""
    tree = ast.parse(file.read_text())
    private_imports = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cave_agent")
        for alias in node.names
        if alias.name.startswith("_") or "._" in f".{node.module}"
    }
    defined = {
        node.name: node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    waiting, seen = [function], set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in defined:
            continue
        seen.add(name)
        for node in ast.walk(defined[name]):
            if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node):
                return True
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_path(node.value):
                return True
            if isinstance(node, ast.Attribute) and is_own(node):
                waiting.append(node.attr)
            if isinstance(node, ast.Name):
                if node.id in private_imports:
                    return True
                waiting.append(node.id)
            if isinstance(node, ast.arg):
                waiting.append(node.arg)
    return False


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_own(node: ast.Attribute) -> bool:
    """Whether it belongs to a class that the test defines."""
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def is_path(text: str) -> bool:
    """The path of a library internal that a test replaces."""
    return text.startswith("cave_agent.") and " " not in text


if __name__ == "__main__":
    sys.exit(main())
