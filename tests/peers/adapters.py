"""Runs the tests of each adapter, and its examples, in an environment that has its framework.

    python -m tests.peers.adapters [FRAMEWORK...] [pytest arguments]

Each framework has a separate environment, `.venv-peers-FRAMEWORK`, since their requirements conflict; the first run
makes it. Tests that a framework ships for its interfaces are among the tests of `tests/peers/adapters`.
Exit status 1: a test fails, or an example prints something else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TESTS: Final = ("pytest>=8.3", "pytest-asyncio>=0.24", "pytest-timeout>=2.3")

PEERS: Final[dict[str, tuple[str, ...]]] = {
    "smolagents": (),
    "dspy": (),
    "fastmcp": (),
    "inspect": (),
    "langchain": ("langchain-tests>=1.1",),
    "nemo_gym": (),
    "openai_agents": (),
    "openenv": (),
    "pydantic_ai": ("anyio>=4",),
    "rlms": (),
    "skyrl": (),
}
"""Extras of this project, and the other packages that the tests need."""

SHOWN: Final = """\
rows without repetitions: 4
rows that are complete: 2
paid: {'Bergen': 30.0, 'Oslo': 50.0}
"""
"""Every example does the same."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("peers", nargs="*", metavar="FRAMEWORK", help="by default all")
    options, more = parser.parse_known_args()
    if unknown := set(options.peers) - set(PEERS):
        parser.error(f"there is no adapter for {', '.join(unknown)}; there are {', '.join(PEERS)}")
    failed = [peer for peer in options.peers or PEERS if not run(peer, more)]
    print(f"failed: {', '.join(failed)}" if failed else "all adapters pass")
    return 1 if failed else 0


def run(peer: str, more: list[str]) -> bool:
    python = environment(peer)
    command = [python, "-m", "pytest", "--noconftest", "-p", "no:cacheprovider", "-W", "ignore", "-rs"]
    files = sorted(
        path.relative_to(ROOT) for path in (ROOT / "tests/peers/adapters").glob(f"test_{peer}*.py")
    )
    tests = subprocess.run([*command, *files, *more], cwd=ROOT, check=False)
    examples = sorted((ROOT / "examples" / "adapters").glob(f"{peer}_*.py"))
    return all([tests.returncode == 0, *(example_runs(python, example) for example in examples)])


def example_runs(python: Path, example: Path) -> bool:
    shown = subprocess.run([python, example], cwd=ROOT, capture_output=True, text=True, check=False)
    if shown.stdout != SHOWN:
        print(f"{example.name} does not print what it should:\n{shown.stdout}{shown.stderr[-2000:]}")
    return shown.stdout == SHOWN


def environment(peer: str) -> Path:
    """Its Python. The installed packages follow pyproject.toml when that changes."""
    folder = ROOT / f".venv-peers-{peer}"
    python = folder / "bin" / "python"
    stamp = folder / ".project"
    extra = peer.replace("_", "-")  # as metadata spell it, which pip before 23.3 takes literally
    wanted = (ROOT / "pyproject.toml").read_text() + repr((PEERS[peer], TESTS))
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*install, "-e", f"{ROOT}[data,{extra}]", *PEERS[peer], *TESTS], check=True)
        stamp.write_text(wanted)
    return python


if __name__ == "__main__":
    sys.exit(main())
