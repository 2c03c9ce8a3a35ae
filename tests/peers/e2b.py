"""Runs E2B's own tests of its code interpreter against `cenote serve`.

    git clone https://github.com/e2b-dev/code-interpreter
    python -m tests.peers.e2b code-interpreter/python [pytest arguments]

The tests are run unchanged, with E2B's SDK in a separate environment (`.venv-peers-e2b`), which is made by the
first run. `docs/doors.md` says how many pass, and why the others do not. Exit status: that of pytest.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGES = (
    "e2b==2.63.0",
    "e2b-code-interpreter==2.11.5",
    "matplotlib",
    "pytest",
    "pytest-asyncio",
    "pytest-dotenv",
    "pytest-timeout",
    "pytest-xdist",
)
PORT = 8495


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="the folder `python` of E2B's repository code-interpreter")
    options, more = parser.parse_known_args()
    if not (options.folder / "tests").is_dir():
        parser.error(f"{options.folder} has no folder `tests`")
    python = environment(Path(".venv-peers-e2b").resolve())
    with TemporaryDirectory() as home:
        token = secrets.token_urlsafe(24)
        server, url = serve({**os.environ, "CENOTE_TOKEN": token, "XDG_CONFIG_HOME": home}, PORT)
        try:
            return run(python, options.folder, url, token, more)
        finally:
            server.terminate()
            server.wait()


def environment(folder: Path) -> Path:
    """Its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


def serve(environ: dict[str, str], port: int) -> tuple[subprocess.Popen[str], str]:
    """The URL of a running server."""
    command = [sys.executable, "-m", "cenote.cli.main", "serve", "--port", str(port)]
    server = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    line = server.stdout.readline()
    if not line.startswith("listening on "):
        server.wait()
        raise SystemExit(f"cenote serve does not run: {line}")
    return server, line.removeprefix("listening on ").partition(";")[0].strip()


def run(python: Path, folder: Path, url: str, token: str, more: list[str]) -> int:
    environ = {
        **os.environ,
        "E2B_API_KEY": token,
        "E2B_API_URL": url,
        "E2B_SANDBOX_URL": url,
        "E2B_HTTP_VERSION": "1.1",
    }
    # performance.py measures E2B's own service.
    suite = [
        "tests",
        "--ignore",
        "tests/performance.py",
        "--import-mode=importlib",
        "-o",
        "asyncio_mode=auto",
    ]
    command = [python, "-m", "pytest", "-q", "--timeout", "90", "-W", "ignore", *suite, *more]
    return subprocess.run(command, env=environ, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
