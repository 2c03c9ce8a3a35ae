"""The far end of a sandbox that brings no runtime of its own: cells in as lines of JSON, what they print out again.

Started as `python -c`, so that it needs nothing but a Python on the other side.
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
