"""Starting a zygote's process: a fresh interpreter with an empty environment, never a fork of the client.

The client may have threads, credentials in its memory and environment, and open descriptors; none gets across.
"""

from __future__ import annotations

import json
import subprocess
from typing import Final

from cenote_security.walls.interpreter import Interpreter

# -I: no PYTHON* variables, no user's folder or current directory on the path. The path comes as an argument instead.
_BOOTSTRAP: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    "from cenote_worker.zygote.main import run; run(int(sys.argv[2]))"
)


def launch(interpreter: Interpreter, descriptor: int) -> subprocess.Popen[bytes]:
    """Start a zygote that talks over `descriptor`. The caller waits for it when it has ended."""
    return subprocess.Popen(
        [interpreter.executable, "-I", "-c", _BOOTSTRAP, json.dumps(interpreter.search), str(descriptor)],
        env={},
        pass_fds=(descriptor,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
