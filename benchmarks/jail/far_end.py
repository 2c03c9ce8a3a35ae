"""The script inside a sandbox without its own runtime: reads cells as JSON lines and returns what they print.

It is started as `python -c`, so that it needs only a Python in the sandbox.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback
from typing import TextIO


def serve(requests: TextIO, answers: TextIO) -> None:
    """Run cells in one namespace until the other end is closed. An answer is `[printed, error]`."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line in requests:
        printed, error = io.StringIO(), ""
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(json.loads(line), "<cell>", "exec"), namespace)
        except Exception:
            error = traceback.format_exc()
        answers.write(json.dumps([printed.getvalue(), error]) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
