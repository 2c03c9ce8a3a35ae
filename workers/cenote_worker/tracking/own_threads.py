"""Threads of Cenote's own in a worker: they run no code of a user's, so a step is none the less alone for them."""

from __future__ import annotations

import threading
from typing import Final

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

OWN: Final[set[int]] = set()
"""Their numbers, as `threading.get_ident` gives them."""

_get_ident = threading.get_ident


class OwnThread(threading.Thread):
    """Carries replies in, or output out. The user's trace and profile functions do not run in it."""

    def start(self) -> None:
        """Raises RuntimeError when no thread can be had."""
        # `threading` looks for both in the new thread, before anything there could turn them off.
        traced, profiled = threading._trace_hook, threading._profile_hook  # type: ignore[attr-defined]
        if traced is None and profiled is None:
            super().start()
            return
        self._has_begun = threading.Event()
        threading._trace_hook = threading._profile_hook = None  # type: ignore[attr-defined]
        try:
            super().start()
            self._has_begun.wait()
        finally:
            threading._trace_hook, threading._profile_hook = traced, profiled  # type: ignore[attr-defined]

    def run(self) -> None:
        OWN.add(_get_ident())
        if (begun := getattr(self, "_has_begun", None)) is not None:
            begun.set()
        try:
            super().run()
        finally:
            OWN.discard(_get_ident())
