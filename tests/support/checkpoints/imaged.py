"""Checkpoints with images of their processes: a process that makes one and is killed, and what a test looks at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

from cenote.runtime import PythonRuntime
from cenote_worker.checkpoints.image_files import ImageFiles
from cenote_worker.runtime.state.checkpoints import Checkpoints

ROOT = Path(__file__).resolve().parents[3]

KILLED = """
import json, os, signal, sys
sys.path[:] = json.loads(sys.argv[2])  # which Ray, for one, adds to: jails see the folders there
from cenote.runtime import Function, PythonRuntime
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.image_files import ImageDraft, ImageFiles
from tests.support.exact_state import STATE, outside
from tests.support.checkpoints.imaged import end_here, finish, images
SANDBOX = SandboxPolicy(preload=("numpy",))
def made(**settings):
    return PythonRuntime(store=sys.argv[1], name="r", sandbox=SANDBOX, **settings)
"""


def killed(folder: Path, code: str) -> None:
    """Runs it in another process, which has to end by a kill -9."""
    ended = subprocess.run(
        [sys.executable, "-c", KILLED + code, str(folder), json.dumps(sys.path)], cwd=ROOT, check=False
    )
    assert -signal.SIGKILL == ended.returncode


def end_here(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def states_of(runtime: PythonRuntime) -> Checkpoints:
    return cast("Checkpoints", runtime.core.checkpoints)


def finish(runtime: PythonRuntime) -> None:
    """Waits until an image that was begun is written, or is not going to be."""
    states_of(runtime).processes.finish()


def images(folder: Path) -> list[int]:
    """Numbers of the checkpoints of `r` that have an image."""
    files = ImageFiles(folder / "r")
    return [number for number in files.numbers() if (found := files.described(number)) and found.size]
