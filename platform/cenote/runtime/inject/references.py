"""Handles to values that live outside any model's context, and outside this process's memory."""

from __future__ import annotations

import threading
import weakref
from dataclasses import replace
from typing import NoReturn, SupportsIndex

from cenote_security.errors import NotCopiedError, UsageError
from cenote_worker.execution.results import VariableInfo
from cenote_worker.transport.content import Content, HeldHere, Holding


class ObjectReference:
    """A value that one runtime shared, sealed; inject it into any other without a copy.

    The value survives the runtime that made it. Its memory is freed when the reference is released, or garbage
    collected, and no runtime has it mapped any more. Nothing here can open it: it is a pickle made in a jail.

    info: name, type, shape, size in bytes and a short description, made in the jail and bounded.
    """

    def __init__(self, holding: Holding, info: VariableInfo) -> None:
        self._holding: Holding | None = holding
        self._lock = threading.Lock()
        self.info = info
        self._finalizer = weakref.finalize(self, holding.release)

    @classmethod
    def of_sealed(cls, content: Content, info: VariableInfo | None) -> ObjectReference:
        """A reference to something on its way between two jails.

        info: what the jail that sends it says; nothing is taken on trust that can be seen from here.
        """
        said = info or VariableInfo(name="", type="object")
        return cls(HeldHere(content), replace(said, size=content.size))

    @property
    def type(self) -> str:
        return self.info.type

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.info.shape

    @property
    def size(self) -> int:
        return self.info.size

    @property
    def description(self) -> str:
        return self.info.description

    @property
    def holding(self) -> Holding:
        """Where the value lies. Raises UsageError after `release`."""
        return self._held()

    def content(self) -> Content:
        """The sealed value for one more holder, who closes it. Raises UsageError after `release`."""
        with self._lock:  # a release in the meantime would close what is being duplicated
            return self._held().content()

    def _held(self) -> Holding:
        holding = self._holding
        if holding is None:
            raise UsageError("this reference was released; share the value again")
        return holding

    def release(self) -> None:
        """Lets go of the value. Runtimes that have it keep it. Releasing twice is fine."""
        with self._lock:
            self._holding = None
        self._finalizer()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        # A name that was written down would hold nothing: the value may be gone before anybody reads it.
        raise NotCopiedError(
            "an ObjectReference",
            "it holds its value for as long as it lives; inject it into a runtime, as a Variable of its own or with "
            "update_variable, and use the same one in several places. Another process has the value by joining a "
            "runtime of a platform that has it",
        )

    def __enter__(self) -> ObjectReference:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def __repr__(self) -> str:
        shape = f" {self.shape}" if self.shape is not None else ""
        return f"<ObjectReference {self.info.name}: {self.type}{shape}, {self.size} bytes>"


class Sealed:
    """A value that passes from one jail to another through this process, which never opens it."""

    def __init__(self, reference: ObjectReference) -> None:
        self.reference = reference
