"""Several authors on one runtime: the core of one that is attached."""

from __future__ import annotations

from cenote.runtime.authors import Scope, check_scope
from cenote.runtime.core import RuntimeCore
from cenote_worker.authors import check_author


class AttachedCore(RuntimeCore):
    """A RuntimeCore for one more author. Closing it detaches the author; the runtime and the names stay."""

    def __init__(self, core: RuntimeCore, author: str, scope: Scope, holder: object) -> None:
        """holder: who closes the runtime when it is forgotten, which must not happen while this is in use."""
        check_author(author)
        check_scope(scope)
        # One client: policy, classes and host functions are the same for all. What differs follows.
        vars(self).update(vars(core))
        self.author, self.scope = author, scope
        self.backend = core.backend.attach(author, private=scope == "private")
        self._holder = holder
        if scope == "private":
            names = core.names_of(author)
            self.items, self._rules = names.items, names.rules
            self._prefix = f"{author}/"

    def reset(self) -> None:
        """Raises UsageError: others hold the runtime too."""
        self.backend.reset()

    def close(self) -> None:
        self.backend.close()
