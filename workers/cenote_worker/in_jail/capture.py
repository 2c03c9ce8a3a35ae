"""`%%capture`: output that is kept instead of shown."""

from __future__ import annotations

import builtins
import io
import sys
from collections.abc import Callable

from cenote_worker.in_jail.display import Bundle, Displays
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS


class RichOutput:
    """One displayed object, as IPython's class of this name. data: its representations by MIME type."""

    def __init__(self, data: Bundle) -> None:
        self.data = data

    def display(self) -> None:
        builtins.display(self.data, raw=True)  # type: ignore[attr-defined]

    def _repr_mimebundle_(self, **_options: object) -> Bundle:
        return self.data


class Capture:
    """What was captured, as IPython's `CapturedIO`. stdout, stderr: the text so far. outputs: what was displayed."""

    def __init__(self) -> None:
        self._out, self._err, self._shown = io.StringIO(), io.StringIO(), list[Bundle]()

    def begin(
        self, displays: Displays, *, stdout: bool = True, stderr: bool = True, display: bool = True
    ) -> Callable[[], None]:
        """Takes over the streams and what is displayed, those that are True. Gives what ends that."""
        streams = sys.stdout, sys.stderr
        if stdout:
            sys.stdout = self._out
        if stderr:
            sys.stderr = self._err
        before = displays.capture(self._shown) if display else None

        def stop() -> None:
            sys.stdout, sys.stderr = streams
            if display:
                displays.capture(before)

        return stop

    @property
    def stdout(self) -> str:
        return self._out.getvalue()

    @property
    def stderr(self) -> str:
        return self._err.getvalue()

    @property
    def outputs(self) -> list[RichOutput]:
        return [RichOutput(bundle) for bundle in self._shown]

    def show(self) -> None:
        """Puts out what was captured where it would have gone."""
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        for output in self.outputs:
            output.display()

    __call__ = show

    def __str__(self) -> str:
        return self.stdout
