"""Names for references that outlast this process's objects: what a stored plan says instead of a value."""

from __future__ import annotations

import secrets
import threading
import weakref
from typing import Protocol

from cenote.runtime import ObjectReference


class ReferenceStore(Protocol):
    """Gives references ids and finds them again. Called from any thread."""

    def keep(self, reference: ObjectReference) -> str:
        """An id, the same one each time for the same reference."""

    def find(self, reference_id: str) -> ObjectReference | None:
        """The reference, or None when it is not there any more."""


class ReferencesInUse:
    """The references that somebody else in this process still holds; it prolongs no value's life."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: weakref.WeakKeyDictionary[ObjectReference, str] = weakref.WeakKeyDictionary()
        self._references: weakref.WeakValueDictionary[str, ObjectReference] = weakref.WeakValueDictionary()

    def keep(self, reference: ObjectReference) -> str:
        with self._lock:
            reference_id = self._ids.get(reference)
            if reference_id is None:
                reference_id = secrets.token_hex(8)
                self._ids[reference] = reference_id
                self._references[reference_id] = reference
            return reference_id

    def find(self, reference_id: str) -> ObjectReference | None:
        with self._lock:
            return self._references.get(reference_id)
