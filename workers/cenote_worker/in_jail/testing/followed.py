"""Which of the user's functions really run: each is noted when it is called first."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Final

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

_INSPECTING: Final = frozenset(
    ("__code__", "__doc__", "__annotations__", "co_code", "co_consts", "getsource", "getsourcelines", "getdoc",
     "signature", "getmembers", "getfullargspec", "dis", "get_annotations")
)  # fmt: skip
"""With these a program learns of a function what running it does not show."""

_REPLACED: Final = "it replaces the tracer of calls"


class Follower:
    """Of code in files below a folder."""

    def __init__(self, top: str) -> None:
        self._top = f"{os.path.realpath(top)}/"
        self._known: dict[int, CodeType] = {}
        """By identity: code objects compare by all that they say, which takes long."""
        self.ran: set[tuple[str, str]] = set()
        """Path from the folder on, and qualified name."""
        self.words: set[str] = set()
        """Names that the code speaks of."""
        self.disturbed = ""

    @contextmanager
    def following(self) -> Iterator[None]:
        """Calls are noted, those in new threads too. disturbed: why not all were."""
        trace = self._called
        threading.settrace(trace)
        sys.settrace(trace)
        try:
            yield
        finally:
            if sys.gettrace() is not trace:
                self.disturbed = _REPLACED
            sys.settrace(None)
            threading.settrace(None)

    @property
    def inspects(self) -> bool:
        """Whether the code may look at functions without running them."""
        return not self.words.isdisjoint(_INSPECTING)

    def _called(self, frame: FrameType, _event: str, _argument: object) -> None:
        code = frame.f_code
        if id(code) not in self._known:
            self._known[id(code)] = code
            if code.co_filename.startswith(self._top):
                self.ran.add((code.co_filename[len(self._top) :], code.co_qualname))
                self.words.update(code.co_names)
