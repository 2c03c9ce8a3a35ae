"""`%%capture`: output that is kept instead of shown."""

from __future__ import annotations

import io
import sys

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS


class Capture:
    """Takes over stdout and stderr when made, gives them back at `stop`. stdout, stderr: the text so far."""

    def __init__(self) -> None:
        self._streams = sys.stdout, sys.stderr
        self._out, self._err = io.StringIO(), io.StringIO()
        sys.stdout, sys.stderr = self._out, self._err

    @property
    def stdout(self) -> str:
        return self._out.getvalue()

    @property
    def stderr(self) -> str:
        return self._err.getvalue()

    def show(self) -> None:
        """Writes what was captured to where it would have gone."""
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)

    def stop(self) -> None:
        sys.stdout, sys.stderr = self._streams
