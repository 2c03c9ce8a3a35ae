"""In which variants a test runs: at several places, with several databases. Its body exists once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.databases import DATABASES
from tests.places import EMBEDDED, PLACES


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Without a mark, `where` is the test's own process, and `db` each kind of database.

    Raises pytest.UsageError for a mark without its fixture, which would do nothing, and for unknown variants.
    """
    places = _marked(metafunc, "at", "where", tuple(PLACES))
    if places is not None:
        metafunc.parametrize("where", places, indirect=True)
    databases = _marked(metafunc, "databases", "db", DATABASES)
    if "db" in metafunc.fixturenames:
        metafunc.parametrize("db", DATABASES if databases is None else databases, indirect=True)


def _marked(
    metafunc: pytest.Metafunc, mark: str, fixture: str, known: tuple[str, ...]
) -> tuple[str, ...] | None:
    found = metafunc.definition.get_closest_marker(mark)
    if found is None:
        return None
    if fixture not in metafunc.fixturenames:
        if found not in metafunc.definition.own_markers:
            return None  # its module's
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: `{mark}` is for tests that use `{fixture}`")
    if unknown := [name for name in found.args if name not in known]:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: no {mark} {unknown}, only {', '.join(known)}")
    return found.args


def is_possible(item: pytest.Item) -> bool:
    """No tenant of a platform chooses a level weaker than its machine has."""
    params = _params(item)
    return params.get("level") != "landlock" or params.get("where", EMBEDDED) == EMBEDDED


def variant_of(item: pytest.Item) -> tuple[str, ...]:
    """The place and the database of a collected test, where it has several."""
    params = _params(item)
    return tuple(str(params[name]) for name in ("where", "db") if name in params)


def _params(item: pytest.Item) -> Mapping[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
