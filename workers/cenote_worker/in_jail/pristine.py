"""The interpreter's builtins as they were before any cell ran; see `cenote_worker.pristine`."""

from __future__ import annotations

from cenote_worker.pristine import BUILTINS

__all__ = ["BUILTINS"]
