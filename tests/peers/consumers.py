"""Runs clients made by others over Cenote's HTTP interface, unchanged, each in a separate environment: clients
built on E2B's SDK and on MCP's.

    python -m tests.peers.consumers [CONSUMER...] [pytest arguments]

Each has an environment `.venv-peers-over-CONSUMER`, which the first run makes with Python 3.12, and a file of tests
in `tests/peers/over_e2b` or `over_mcp`. Models are scripted, so nothing leaves this machine. All run over `cenote
serve` and again over `cenote up`. Exit status 1: a test fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from xml.etree import ElementTree

from tests.peers.e2b import serve

ROOT: Final = Path(__file__).resolve().parents[2]
TESTS: Final = ("pytest>=8.3", "pytest-timeout>=2.3")
ASYNC: Final = "pytest-asyncio>=0.24"
E2B: Final = ("e2b==2.63.0", "e2b-code-interpreter==2.11.5")

CONSUMERS: Final[Mapping[str, tuple[str, ...]]] = {
    "smolagents": ("smolagents==1.26.0", "python-dotenv", *E2B),
    "openai_agents": ("openai-agents==0.24.0", ASYNC, *E2B),
    "pydantic_ai": ("pydantic-ai-harness[e2b]==0.62.0", "anyio>=4", *E2B),
    "langchain": ("langchain-e2b==0.0.6", "langchain-tests==1.1.9", ASYNC, *E2B),
    "fastmcp": ("fastmcp>=4.1,<5", ASYNC),
    "inspect": ("inspect-sandboxes==0.6.1", ASYNC, *E2B),
}
"""Their packages."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("consumers", nargs="*", metavar="CONSUMER", help="by default all")
    options, more = parser.parse_known_args()
    if unknown := set(options.consumers) - set(CONSUMERS):
        parser.error(f"not known: {', '.join(unknown)}; there are {', '.join(CONSUMERS)}")
    chosen = options.consumers or list(CONSUMERS)
    pythons = {consumer: environment(consumer) for consumer in chosen}
    failed = list[str]()
    with TemporaryDirectory() as temporary, ExitStack() as servers:  # end before their folders do
        for server in ("serve", "up"):
            folder = Path(temporary) / server
            folder.mkdir()
            door = servers.enter_context(DOORS[server](folder))
            for consumer, python in pythons.items():
                status, passed, total = run(python, consumer, door, folder / "report.xml", more)
                print(f"{consumer} over `cenote {server}`: {passed} of {total}", flush=True)
                if status:
                    failed.append(f"{consumer} over `cenote {server}`")
    print(f"failed: {', '.join(failed)}" if failed else "all pass")
    return 1 if failed else 0


def environment(consumer: str) -> Path:
    """Its Python. The environment is made again when its packages change."""
    folder = ROOT / f".venv-peers-over-{consumer}"
    python, stamp = folder / "bin" / "python", folder / ".packages"
    packages = (*CONSUMERS[consumer], *TESTS)
    if not stamp.exists() or stamp.read_text() != repr(packages):
        maker = shutil.which("python3.12") or sys.executable
        subprocess.run([maker, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
        stamp.write_text(repr(packages))
    return python


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, str]]:
    """The server's URL and a token."""
    token = "a-token-of-this-run"
    server, url = serve({**os.environ, "CENOTE_TOKEN": token, "XDG_CONFIG_HOME": str(folder)}, port=0)
    try:
        yield url, token
    finally:
        server.terminate()
        server.wait()


@contextmanager
def up(folder: Path) -> Iterator[tuple[str, str]]:
    """The same for a platform."""
    own = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("STATE", "CONFIG")}
    environ = {name: text for name, text in os.environ.items() if not name.startswith("CENOTE_")} | own
    cenote = [sys.executable, "-m", "cenote.cli.main"]

    def said(*words: str) -> str:
        done = subprocess.run([*cenote, *words], env=environ, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.strip()

    url = json.loads(said("up", "--without-ray", "--port", "0", "--json"))["http"]
    try:
        said("tenant", "create", "consumers")
        yield url, said("token", "create", "consumers")
    finally:
        said("down")


DOORS: Final = {"serve": served, "up": up}


def run(
    python: Path, consumer: str, door: tuple[str, str], report: Path, more: list[str]
) -> tuple[int, int, int]:
    """The status of pytest, and how many tests passed of how many; expected failures do not count as passed."""
    url, token = door
    environ = {
        **os.environ,
        "E2B_API_KEY": token,
        "E2B_API_URL": url,
        "E2B_SANDBOX_URL": url,
        "E2B_HTTP_VERSION": "1.1",
        "CENOTE_URL": url,
        "CENOTE_TOKEN": token,
        "CENOTE_PYTHON": sys.executable,
    }
    command = [python, "-m", "pytest", "-q", "--noconftest", "-c", os.devnull, "--rootdir", ROOT]
    command += ["-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "-W", "ignore", "--timeout", "120"]
    (tests,) = (ROOT / "tests" / "peers").glob(f"over_*/with_{consumer}.py")
    command += [f"--junitxml={report}", tests, *more]
    status = subprocess.run(command, env=environ, cwd=ROOT, check=False).returncode
    suite = next(ElementTree.parse(report).iter("testsuite")).attrib
    total = int(suite["tests"])
    return status, total - sum(int(suite[kind]) for kind in ("failures", "errors", "skipped")), total


if __name__ == "__main__":
    sys.exit(main())
