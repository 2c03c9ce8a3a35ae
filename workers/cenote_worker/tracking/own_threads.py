"""Threads of Cenote's own in a worker: they run no code of a user's, so a step is none the less alone for them."""

from __future__ import annotations

import threading


class OwnThread(threading.Thread):
    """Carries replies in, or output out."""
