"""What the operator's commands work on: the records of the platform of this user, whether it runs or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cenote_security.errors import UnavailableError

if TYPE_CHECKING:
    from cenote.gateway.audit.entries import AuditEvent
    from cenote.gateway.store.database import Database


@contextmanager
def records() -> Iterator[Database]:
    """The database, closed at the end of the block. Raises UnavailableError where no platform has run yet."""
    from cenote.gateway.store.database import Database, database_place
    from cenote.gateway.store.state_folder import state_folder

    place = database_place(state_folder())
    if isinstance(place, Path) and not place.exists():
        raise UnavailableError(f"there are no records at {place}; `cenote up` makes them")
    with Database(place) as database:
        yield database


def note(database: Database, event: AuditEvent) -> None:
    """Leaves what was done for the gateway to put on record."""
    from cenote.gateway.audit.recorder import Notices

    Notices(database).leave(event)
